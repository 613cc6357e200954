#pragma once

// A client of bytes: what it sends is sent as it is, and what comes back is read as it comes.

#include <openssl/ssl.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

struct ClientReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
};

class HttpClient {
 public:
  explicit HttpClient(int port);
  // That takes little before it is read, in small packets, so that a server soon has to wait for
  // it.
  HttpClient(int port, int window_bytes);
  // Inside TLS, with a server whose certificate is the PEM text `trusted`, made for 127.0.0.1.
  HttpClient(int port, const std::string& trusted);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // False where the connection takes no more.
  bool send(std::string_view bytes);
  // Sends no more; what comes is still read.
  void end_sending();
  // Until the text has come; false where the connection ends first.
  bool read_until(std::string_view text);
  // What has come and was not taken by read_reply().
  const std::string& unread() const { return read_; }
  // The next whole answer; nothing where the connection ends first.
  std::optional<ClientReply> read_reply();

  // Lines "Name: value\r\n" that go with every get() and post().
  void always_send(const std::string& headers) { headers_ = headers; }
  std::optional<ClientReply> get(const std::string& path);
  std::optional<ClientReply> post(const std::string& path, const std::string& body);
  // Whether TLS was agreed on; true without it.
  bool secured() const { return secured_; }

 private:
  bool read_more();
  void connect(int port);

  int socket_ = -1;
  SSL_CTX* context_ = nullptr;  // null: plain
  SSL* tls_ = nullptr;
  bool secured_ = true;
  std::string headers_;
  std::string read_;
};

std::string post_text(const std::string& path, const std::string& body,
                      const std::string& headers = "");

}  // namespace fathom
