#pragma once

// For tests: a real server of the Redis protocol, and a proxy before it that spoils what it says.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"

namespace fathom {

// The path of redis-server; empty where it is not installed.
inline std::string redis_program() {
  for (const char* folder : {"/usr/bin", "/usr/local/bin", "/usr/sbin", "/opt/bin"}) {
    const std::string path = std::string(folder) + "/redis-server";
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

inline sockaddr_in loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<uint16_t>(port));
  return address;
}

inline FileDescriptor connected(int port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return socket;
  }
  return FileDescriptor();
}

// Listens on a free port, or on that one.
inline FileDescriptor listening(int* port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = loopback(*port);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket.get(), 16) != 0) {
    return FileDescriptor();
  }
  socklen_t size = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  *port = ::ntohs(address.sin_port);
  return socket;
}

// A server with nothing in it, which writes nothing to disk. Ends with the test.
class RedisServer {
 public:
  explicit RedisServer(std::string password = "") : password_(std::move(password)) { start(); }
  ~RedisServer() { stop(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

  // Killed; what it had is lost.
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // On its port. Whether it answers.
  bool start() {
    constexpr int kTries = 500;
    if (port_ == 0) listening(&port_);
    const std::string program = redis_program();
    const std::string port = std::to_string(port_);
    const std::string folder = std::filesystem::temp_directory_path().string();
    std::vector<const char*> args = {
        program.c_str(), "--port", port.c_str(), "--bind",       "127.0.0.1", "--save",   "",
        "--appendonly",  "no",     "--dir",      folder.c_str(), "--logfile", "/dev/null"};
    if (!password_.empty()) args.insert(args.end(), {"--requirepass", password_.c_str()});
    args.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execv(program.c_str(), const_cast<char* const*>(args.data()));
      ::_exit(127);
    }
    for (int i = 0; i < kTries; ++i) {
      if (connected(port_).is_open()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  const std::string password_;
  int port_ = 0;
  pid_t pid_ = -1;
};

enum class ProxyMode {
  kPass,
  kSlow,     // what the server says comes a second later
  kSilent,   // never
  kDrip,     // a byte each 5 ms
  kGarbage,  // random bytes come instead
  kFlip,     // of every larger piece one bit is turned
  kList,     // a list of a billion elements is announced instead
};

// Between a client and a server on loopback. The mode may change at any time.
class TcpProxy {
 public:
  explicit TcpProxy(int server_port) : server_port_(server_port) {
    listener_ = listening(&port_);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  int port() const { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  void set_mode(ProxyMode mode) {
    const std::lock_guard lock(mutex_);
    mode_ = mode;
  }
  ProxyMode mode() const {
    const std::lock_guard lock(mutex_);
    return mode_;
  }

 private:
  struct Piece {
    int64_t due_us = 0;
    std::string bytes;
  };
  struct Pair {
    FileDescriptor client;
    FileDescriptor server;
    std::deque<Piece> pieces;  // on their way to the client
  };

  static int64_t now_us() { return static_cast<int64_t>(steady_seconds() * 1e6); }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled = {{.fd = listener_.get(), .events = POLLIN}};
      for (const Pair& pair : pairs_) {
        polled.push_back({.fd = pair.client.get(), .events = POLLIN});
        polled.push_back({.fd = pair.server.get(), .events = POLLIN});
      }
      ::poll(polled.data(), polled.size(), 1);
      size_t at = 1;
      for (auto pair = pairs_.begin(); pair != pairs_.end(); at += 2) {
        const bool open = forward(*pair, polled[at].revents != 0, polled[at + 1].revents != 0);
        pair = open ? std::next(pair) : pairs_.erase(pair);
      }
      if ((polled[0].revents & POLLIN) == 0) continue;
      Pair fresh = {
          .client = FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
          .server = connected(server_port_)};
      if (fresh.client.is_open() && fresh.server.is_open()) pairs_.push_back(std::move(fresh));
    }
  }

  bool forward(Pair& pair, bool from_client, bool from_server) {
    char buffer[1 << 16];
    if (from_client) {
      const ssize_t n = ::recv(pair.client.get(), buffer, sizeof(buffer), 0);
      if (n <= 0 || !send(pair.server, {buffer, static_cast<size_t>(n)})) return false;
    }
    if (from_server) {
      const ssize_t n = ::recv(pair.server.get(), buffer, sizeof(buffer), 0);
      if (n <= 0) return false;
      take({buffer, static_cast<size_t>(n)}, pair);
    }
    while (!pair.pieces.empty() && pair.pieces.front().due_us <= now_us()) {
      if (!send(pair.client, pair.pieces.front().bytes)) return false;
      pair.pieces.pop_front();
    }
    return true;
  }

  void take(std::string bytes, Pair& pair) {
    constexpr int64_t kSlowUs = 1'000'000;
    constexpr int64_t kDripUs = 5000;
    constexpr size_t kLarge = 64;
    switch (mode()) {
      case ProxyMode::kSilent:
        return;
      case ProxyMode::kSlow:
        pair.pieces.push_back({now_us() + kSlowUs, bytes});
        return;
      case ProxyMode::kDrip:
        for (size_t i = 0; i < bytes.size(); ++i) {
          pair.pieces.push_back({now_us() + kDripUs * static_cast<int64_t>(i), bytes.substr(i, 1)});
        }
        return;
      case ProxyMode::kGarbage:
        for (char& byte : bytes) byte = static_cast<char>(random_());
        break;
      case ProxyMode::kFlip:
        if (bytes.size() >= kLarge) bytes[random_() % bytes.size()] ^= char{1};
        break;
      case ProxyMode::kList:
        bytes = "*1000000000\r\n";
        break;
      case ProxyMode::kPass:
        break;
    }
    pair.pieces.push_back({now_us(), std::move(bytes)});
  }

  static bool send(const FileDescriptor& to, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  const int server_port_;
  int port_ = 0;
  FileDescriptor listener_;
  mutable std::mutex mutex_;
  ProxyMode mode_ = ProxyMode::kPass;
  std::mt19937 random_{1};
  std::list<Pair> pairs_;
  std::jthread thread_;
};

}  // namespace fathom
