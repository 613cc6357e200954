#pragma once

// A client of bytes: what it sends is sent as it is, and what comes back is read as it comes.

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
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);
  // Until the text has come; false where the connection ends first.
  bool read_until(std::string_view text);
  // What has come and was not taken by read_reply().
  const std::string& unread() const { return read_; }
  // The next whole answer; nothing where the connection ends first.
  std::optional<ClientReply> read_reply();

  std::optional<ClientReply> get(const std::string& path);
  std::optional<ClientReply> post(const std::string& path, const std::string& body);

 private:
  bool read_more();

  int socket_ = -1;
  std::string read_;
};

std::string post_text(const std::string& path, const std::string& body);

}  // namespace fathom
