// Goal: the console comes whole from the program, with headers that keep it to itself, and shows
// what the server counts. Method: a server in this process, raw clients over loopback. What a
// browser makes of it: tests/console.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <regex>
#include <set>

#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kState[] = "/console/state";

ClientReply get(const Served& served, const std::string& path, const std::string& headers = "") {
  HttpClient client(served.port());
  client.always_send(headers);
  return *client.get(path);
}

// What a page, a style or a script names: the files that a browser goes on to ask for.
std::set<std::string> named_in(const std::string& text) {
  static const std::regex kName(R"re((?:(?:href|src)="console/|from "\./)([\w.]+)")re");
  std::set<std::string> names;
  const auto end = std::sregex_iterator();
  for (auto it = std::sregex_iterator(text.begin(), text.end(), kName); it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

TEST(Console, EveryFileThatThePageNamesIsThere) {
  const Served served({});
  std::set<std::string> seen;
  std::vector<std::string> paths = {"/console"};
  while (!paths.empty()) {
    const std::string path = paths.back();
    paths.pop_back();
    const ClientReply reply = get(served, path);
    ASSERT_EQ(reply.status, 200) << path;
    EXPECT_EQ(reply.headers.at("x-content-type-options"), "nosniff");
    for (const std::string& name : named_in(reply.body)) {
      if (seen.insert(name).second) paths.push_back("/console/" + name);
    }
  }
  EXPECT_GT(seen.size(), 10U);
  EXPECT_EQ(get(served, "/console").headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(get(served, "/console/app.js").headers.at("content-type"),
            "text/javascript; charset=utf-8");
  EXPECT_EQ(get(served, "/console/style.css").headers.at("content-type"),
            "text/css; charset=utf-8");
  EXPECT_EQ(get(served, "/console/icon.svg").headers.at("content-type"), "image/svg+xml");
}

TEST(Console, ThePolicyAllowsTheServersOwnFilesAlone) {
  const Served served({});
  std::string policy = get(served, "/console").headers.at("content-security-policy") + ";";
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  for (const std::string part : {"default-src 'none';", "script-src 'self';", "style-src 'self';",
                                 "connect-src 'self';", "frame-ancestors 'none';"}) {
    EXPECT_NE(policy.find(part), std::string::npos) << part;
  }
}

TEST(Console, WhatAClientHasIsNotSentAgain) {
  const Served served({});
  const ClientReply whole = get(served, "/console/app.js");
  const std::string tag = whole.headers.at("etag");
  EXPECT_EQ(whole.headers.at("cache-control"), "no-cache");
  const ClientReply same =
      get(served, "/console/app.js", "If-None-Match: \"other\", " + tag + "\r\n");
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.headers.at("etag"), tag);
  EXPECT_EQ(get(served, "/console/chat.js", "If-None-Match: " + tag + "\r\n").status, 200);
}

TEST(Console, WhatIsNotThereIsRefused) {
  const Served served({});
  for (const std::string path : {"/console/none.js", "/console/../app.js"}) {
    EXPECT_EQ(get(served, path).status, 404) << path;
  }
  for (const std::string path : {"/console", "/console/app.js", "/console/state"}) {
    HttpClient client(served.port());
    const auto reply = client.post(path, "{}");
    EXPECT_EQ(reply->status, 405) << path;
    EXPECT_EQ(reply->headers.at("allow"), "GET");
  }
}

TEST(Console, TheStateIsWhatTheServerCounts) {
  Served served({.version = "1.2.3"});
  const json::value before = json::parse(get(served, kState).body);
  EXPECT_EQ(before.at("server").at("version").as_string(), "1.2.3");
  EXPECT_EQ(before.at("tokens").at("prompt").as_int64(), 0);
  HttpClient client(served.port());
  const std::string body = R"({"messages":[{"role":"user","content":")" + std::string(600, 'x') +
                           R"("}],"thinking":{"type":"disabled"},"temperature":0,"max_tokens":5})";
  const json::value first = json::parse(client.post("/v1/chat/completions", body)->body);
  const json::value second = json::parse(client.post("/v1/chat/completions", body)->body);
  const json::value state = json::parse(get(served, kState).body);
  const auto n = [&](const char* group, const char* name) {
    return state.at(group).at(name).as_int64();
  };
  EXPECT_EQ(n("tokens", "prompt"), 2 * first.at("usage").at("prompt_tokens").as_int64());
  EXPECT_EQ(n("tokens", "cached"), second.at("usage").at("prompt_cache_hit_tokens").as_int64());
  EXPECT_GT(n("tokens", "cached") + n("tokens", "replayed"), 0);
  EXPECT_EQ(n("hits", "none"), 1);
  EXPECT_EQ(n("hits", "exact"), 1);
  EXPECT_EQ(n("blocks", "pinned") + n("blocks", "cached") + n("blocks", "free"),
            n("blocks", "total"));
  EXPECT_GT(n("blocks", "cached"), 0);
  EXPECT_GT(n("blocks", "bytes"), 0);
  EXPECT_EQ(n("windows", "total"), 3);
  EXPECT_EQ(n("windows", "used"), 0);
  EXPECT_EQ(n("queue", "requests_max"), 4);
  EXPECT_EQ(n("requests", "first_tokens"), 2);
  EXPECT_GE(n("server", "connections"), 1);
  EXPECT_GT(state.at("uptime_s").as_double(), before.at("uptime_s").as_double());
  EXPECT_TRUE(state.at("ready").as_bool());
  EXPECT_EQ(served.log().size(), 2U);  // the calls; a page that looks each second fills no log
}

// The files say nothing of the server; its state says when others are served.
TEST(Console, TheStateAsksForAKeyAndTheFilesDoNot) {
  const NewKey user = *make_key("alice");
  const NewKey watch = *make_key("watch");
  const Served served(
      {.keys = *read_keys(user.table + watch.table + "role = \"metrics\"\n", "keys")});
  const auto shown = [](const NewKey& key) { return "Authorization: Bearer " + key.key + "\r\n"; };
  EXPECT_EQ(get(served, "/console").status, 200);
  EXPECT_EQ(get(served, "/console/app.js").status, 200);
  EXPECT_EQ(get(served, kState).status, 401);
  EXPECT_EQ(get(served, kState, shown(user)).status, 403);
  EXPECT_EQ(get(served, kState, shown(watch)).status, 200);
}

}  // namespace
}  // namespace fathom
