#include "http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/check.h"

namespace fathom {

HttpClient::HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) { connect(port); }

HttpClient::HttpClient(int port, int window_bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  constexpr int kPacketBytes = 536;  // a server's buffer is a multiple of this
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &window_bytes, sizeof(window_bytes));
  ::setsockopt(socket_, IPPROTO_TCP, TCP_MAXSEG, &kPacketBytes, sizeof(kPacketBytes));
  connect(port);
}

void HttpClient::connect(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FATHOM_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  const timeval patience = {.tv_sec = 120, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

HttpClient::HttpClient(int port, const std::string& trusted) : HttpClient(port) {
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  context_ = SSL_CTX_new(TLS_client_method());
  BIO* text = BIO_new_mem_buf(trusted.data(), static_cast<int>(trusted.size()));
  X509* certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  FATHOM_CHECK(X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), certificate) == 1);
  X509_free(certificate);
  BIO_free(text);
  tls_ = SSL_new(context_);
  SSL_set_verify(tls_, SSL_VERIFY_PEER, nullptr);
  FATHOM_CHECK(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_), "127.0.0.1") == 1);
  SSL_set_fd(tls_, socket_);
  secured_ = SSL_connect(tls_) == 1;
}

HttpClient::~HttpClient() {
  if (tls_ != nullptr && secured_) SSL_shutdown(tls_);
  SSL_free(tls_);
  SSL_CTX_free(context_);
  ::close(socket_);
}

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = tls_ != nullptr
                          ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                          : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void HttpClient::end_sending() { ::shutdown(socket_, SHUT_WR); }

bool HttpClient::read_more() {
  char buffer[4096];
  const ssize_t n = tls_ != nullptr ? SSL_read(tls_, buffer, sizeof(buffer))
                                    : ::recv(socket_, buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  read_.append(buffer, static_cast<size_t>(n));
  return true;
}

bool HttpClient::read_until(std::string_view text) {
  while (read_.find(text) == std::string::npos) {
    if (!read_more()) return false;
  }
  return true;
}

namespace {

ClientReply read_head(const std::string& head) {
  ClientReply reply;
  reply.status = std::stoi(head.substr(head.find(' ') + 1));
  size_t at = head.find("\r\n") + 2;
  while (at < head.size()) {
    const size_t end = head.find("\r\n", at);
    const size_t colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    std::ranges::transform(name, name.begin(),
                           [](char c) { return static_cast<char>(tolower(c)); });
    reply.headers[name] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  return reply;
}

}  // namespace

std::optional<ClientReply> HttpClient::read_reply() {
  if (!read_until("\r\n\r\n")) return std::nullopt;
  const size_t end = read_.find("\r\n\r\n");
  ClientReply reply = read_head(read_.substr(0, end + 2));
  read_.erase(0, end + 4);
  if (reply.status == 304 || reply.status < 200) return reply;  // never has a body
  if (reply.headers.count("transfer-encoding") == 0) {
    const size_t n = std::stoul(reply.headers.at("content-length"));
    while (read_.size() < n) {
      if (!read_more()) return std::nullopt;
    }
    reply.body = read_.substr(0, n);
    read_.erase(0, n);
    return reply;
  }
  while (true) {
    if (!read_until("\r\n")) return std::nullopt;
    const size_t n = std::stoul(read_, nullptr, 16);
    const size_t head = read_.find("\r\n") + 2;
    while (read_.size() < head + n + 2) {
      if (!read_more()) return std::nullopt;
    }
    reply.body += read_.substr(head, n);
    read_.erase(0, head + n + 2);
    if (n == 0) return reply;
  }
}

std::optional<ClientReply> HttpClient::get(const std::string& path) {
  send("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers_ + "\r\n");
  return read_reply();
}

std::string post_text(const std::string& path, const std::string& body,
                      const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::optional<ClientReply> HttpClient::post(const std::string& path, const std::string& body) {
  send(post_text(path, body, headers_));
  return read_reply();
}

}  // namespace fathom
