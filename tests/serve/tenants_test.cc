// Goal: each key is a tenant of its own: who has none is turned away, nobody meets another's cache,
// limits hold, figures and log say what was done, an administrator can clear. Method: a server in
// this process with a keys file, raw clients over loopback.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <regex>
#include <set>
#include <thread>

#include "serve/prometheus_testing.h"
#include "served.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr char kChat[] = "/v1/chat/completions";

// Keys of alice and bob (users), of watch (metrics) and root (admin).
class TenantsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string file;
    for (const auto& [name, more] :
         std::map<std::string, std::string>{{"alice", ""},
                                            {"bob", ""},
                                            {"hasty", "requests_per_minute = 2\n"},
                                            {"greedy", "tokens_per_minute = 40\n"},
                                            {"single", "concurrent_requests = 1\n"},
                                            {"watch", "role = \"metrics\"\n"},
                                            {"root", "role = \"admin\"\n"}}) {
      const NewKey made = *make_key(name);
      keys_[name] = made.key;
      file += made.table + more;
    }
    ring_ = *read_keys(file, "keys");
    served_ = std::make_unique<Served>(ServerOptions{.read_ms = 20'000, .keys = ring_});
  }

  void TearDown() override {
    served_->stop();
    for (const std::string& line : served_->log()) {
      for (const auto& [name, key] : keys_) EXPECT_EQ(line.find(key), std::string::npos);
    }
  }

  // A client that shows this tenant's key.
  std::unique_ptr<HttpClient> client(const std::string& name) {
    auto made = std::make_unique<HttpClient>(served_->port());
    if (!name.empty()) made->always_send("Authorization: Bearer " + keys_.at(name) + "\r\n");
    return made;
  }

  static std::string call(const std::string& more = "") {
    return R"({"messages":[{"role":"user","content":"Write a loop that adds the numbers of a )"
           R"(list, then one that multiplies them, then one that finds the largest, and )"
           R"(say for each of the three how often its body runs and which ends first. Then )"
           R"(write the same three as one loop, and say what it costs beside them."}],)"
           R"("thinking":{"type":"disabled"},"temperature":0,"max_tokens":8)" +
           more + "}";
  }

  json::value ask(const std::string& name) {
    const auto reply = client(name)->post(kChat, call());
    EXPECT_EQ(reply->status, 200) << reply->body;
    return json::parse(reply->body);
  }
  // Tokens whose entries were there, also where their windows were computed again.
  static int64_t found(const json::value& answer) {
    return answer.at("usage").at("prompt_cache_hit_tokens").as_int64() +
           answer.at("fathom").at("replayed_tokens").as_int64();
  }
  int64_t cached(const std::string& name) { return found(ask(name)); }

  int64_t blocks_of(const json::value& report, const std::string& name) {
    for (const json::value& tenant : report.at("tenants").as_array()) {
      if (tenant.at("name").as_string() == name) return tenant.at("blocks").as_int64();
    }
    return 0;
  }

  std::map<std::string, std::string> keys_;
  KeyRing ring_;
  std::unique_ptr<Served> served_;
};

std::string code_of(const ClientReply& reply) {
  return std::string(json::parse(reply.body).at("error").at("code").as_string());
}

TEST_F(TenantsTest, WhoHasNoKeyIsTurnedAway) {
  const auto none = client("")->post(kChat, call());
  EXPECT_EQ(none->status, 401);
  EXPECT_EQ(code_of(*none), "invalid_api_key");
  EXPECT_EQ(none->headers.at("www-authenticate"), "Bearer");
  HttpClient wrong(served_->port());
  wrong.always_send("Authorization: Bearer sk-fathom-" + std::string(48, '0') + "\r\n");
  EXPECT_EQ(wrong.post(kChat, call())->status, 401);
  HttpClient other_header(served_->port());
  other_header.always_send("x-api-key: " + keys_.at("alice") + "\r\n");
  EXPECT_EQ(other_header.get("/v1/models")->status, 200);
  HttpClient both(served_->port());
  both.always_send("authorization: bearer nobody\r\nX-API-Key: " + keys_.at("alice") + "\r\n");
  EXPECT_EQ(both.get("/v1/models")->status, 401);  // Authorization wins
  EXPECT_EQ(both.get("/health")->status, 200);     // over the same connection
  EXPECT_EQ(both.get("/ready")->status, 200);
  HttpClient long_body(served_->port());  // is answered before its body came
  long_body.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 40000000\r\n\r\n{");
  EXPECT_EQ(long_body.read_reply()->status, 401);
}

TEST_F(TenantsTest, ARoleDoesWhatItIsForAndNoMore) {
  EXPECT_EQ(client("watch")->get("/metrics")->status, 200);
  const auto refused = client("watch")->get("/v1/models");
  EXPECT_EQ(refused->status, 403);
  EXPECT_EQ(json::parse(refused->body).at("error").at("message").as_string(),
            "key: wanted one of the role user, found one of the role metrics");
  EXPECT_EQ(client("alice")->get("/metrics")->status, 403);
  EXPECT_EQ(client("alice")->get("/admin/cache")->status, 403);
  EXPECT_EQ(client("alice")->post("/admin/cache/clear", "")->status, 403);
  EXPECT_EQ(client("root")->get("/v1/models")->status, 200);
  EXPECT_EQ(client("root")->get("/metrics")->status, 200);
  EXPECT_EQ(client("root")->get("/admin/nothing")->status, 404);
  EXPECT_EQ(client("root")->get("/admin/cache/clear")->status, 405);
  EXPECT_EQ(client("root")->post("/metrics", "")->status, 405);
}

TEST_F(TenantsTest, TwoTenantsShareNoBlockAndOneSharesItsOwn) {
  const json::value first = ask("alice");
  EXPECT_EQ(first.at("usage").at("prompt_cache_hit_tokens").as_int64(), 0);
  const json::value other = ask("bob");
  EXPECT_EQ(other.at("usage").at("prompt_cache_hit_tokens").as_int64(), 0);
  EXPECT_EQ(other.at("choices"), first.at("choices"));
  EXPECT_EQ(cached("alice"), 64);
  EXPECT_EQ(cached("bob"), 64);
}

TEST_F(TenantsTest, AnAdministratorSeesTheCacheAndClearsIt) {
  ask("alice");
  ask("bob");
  const auto root = client("root");
  const json::value before = json::parse(root->get("/admin/cache")->body);
  const int64_t n_alice = blocks_of(before, "alice");
  EXPECT_GE(n_alice, 1);
  EXPECT_EQ(blocks_of(before, "bob"), n_alice);
  // What the store would call the tenants.
  std::set<std::string> tags;
  for (const json::value& key : before.at("keys").as_array()) {
    tags.insert(std::string(key.at("tag").as_string()));
    if (key.at("name").as_string() != "alice") continue;
    KeyRoot root;
    root.tenant_salt = cache_salt(*ring_.named("alice"));
    char tag[17];
    std::snprintf(tag, sizeof(tag), "%016lx", tenant_tag(root_key(root)));
    EXPECT_EQ(key.at("tag").as_string(), tag);
    EXPECT_EQ(key.at("role").as_string(), "user");
  }
  EXPECT_EQ(tags.size(), keys_.size());
  const json::value& blocks = before.at("blocks");
  EXPECT_EQ(blocks.at("cached").as_int64(), 2 * n_alice);
  EXPECT_EQ(blocks.at("pinned").as_int64(), 0);
  EXPECT_EQ(blocks.at("free").as_int64() + 2 * n_alice, blocks.at("total").as_int64());
  const auto clear = [&](const std::string& body) {
    const auto reply = root->post("/admin/cache/clear", body);
    EXPECT_EQ(reply->status, 200) << reply->body;
    return json::parse(reply->body).at("cleared").as_int64();
  };
  EXPECT_EQ(clear(R"({"tenant":"alice"})"), n_alice);
  EXPECT_EQ(cached("alice"), 0);
  EXPECT_EQ(cached("bob"), 64);
  EXPECT_EQ(clear(""), 2 * n_alice);
  EXPECT_EQ(cached("bob"), 0);
  const auto unknown = root->post("/admin/cache/clear", R"({"tenant":"carol"})");
  EXPECT_EQ(unknown->status, 400);
  EXPECT_EQ(root->post("/admin/cache/clear", "[]")->status, 400);
  EXPECT_EQ(root->post("/admin/cache/clear", R"({"all":1})")->status, 400);
  const auto twice = root->post("/admin/cache/clear", R"({"tenant":"alice","tenant":"bob"})");
  EXPECT_EQ(twice->status, 400);
  EXPECT_EQ(json::parse(twice->body).at("error").at("message").as_string(),
            "body: JSON: byte 32: wanted each key once, found \"tenant\" again");
}

TEST_F(TenantsTest, LimitsHoldForTheirKeyAlone) {
  const auto hasty = client("hasty");
  EXPECT_EQ(hasty->post(kChat, "{}")->status, 400);  // a wrong one counts
  EXPECT_EQ(hasty->post(kChat, call())->status, 200);
  const auto third = hasty->post(kChat, call());
  EXPECT_EQ(third->status, 429);
  EXPECT_EQ(json::parse(third->body).at("error").at("type").as_string(), "rate_limit_error");
  const int retry_s = std::stoi(third->headers.at("retry-after"));
  EXPECT_GE(retry_s, 1);
  EXPECT_LE(retry_s, 30);
  EXPECT_EQ(hasty->get("/v1/models")->status, 200);

  const auto greedy = client("greedy");
  EXPECT_EQ(greedy->post(kChat, call())->status, 200);  // more than the bucket, which was full
  const auto more = greedy->post(kChat, call());
  EXPECT_EQ(more->status, 429);
  EXPECT_NE(more->body.find("tokens_per_minute: wanted at most 40 of this key"), std::string::npos);
  EXPECT_GT(std::stoi(more->headers.at("retry-after")), 60);

  const auto single = client("single");
  single->send(post_text(kChat, long_call(), "x-api-key: " + keys_.at("single") + "\r\n"));
  ASSERT_TRUE(single->read_until("data: "));
  const auto second = client("single")->post(kChat, call());
  EXPECT_EQ(second->status, 429);
  EXPECT_NE(second->body.find("concurrent_requests: wanted fewer than 1"), std::string::npos);
  EXPECT_GE(std::stoi(second->headers.at("retry-after")), 1);
  EXPECT_EQ(client("alice")->post(kChat, call())->status, 200);
  ASSERT_TRUE(single->read_until("[DONE]"));
  EXPECT_NE(single->unread().find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_EQ(client("single")->post(kChat, call())->status, 200);

  const PrometheusReader read(client("watch")->get("/metrics")->body);
  for (const char* limit : {"requests_per_minute", "tokens_per_minute", "concurrent_requests"}) {
    EXPECT_EQ(read.value("fathom_refused_requests_total", std::string("reason=\"") + limit + "\""),
              1);
  }
}

TEST_F(TenantsTest, MetricsSayWhatWasDone) {
  int64_t prompt = 0;
  int64_t answered = 0;
  int64_t hit = 0;
  int64_t n_found = 0;
  for (const char* name : {"alice", "alice", "bob"}) {
    const json::value body = ask(name);
    const json::value& usage = body.at("usage");
    prompt += usage.at("prompt_tokens").as_int64();
    answered += usage.at("completion_tokens").as_int64();
    hit += usage.at("prompt_cache_hit_tokens").as_int64();
    n_found += found(body);
  }
  client("alice")->get("/nowhere");
  client("")->get("/v1/models");
  for (int i = 0; i < 3; ++i) client("")->get("/" + std::to_string(i));  // no series for each
  const auto reply = client("watch")->get("/metrics");
  EXPECT_EQ(reply->headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const PrometheusReader read(reply->body);
  EXPECT_EQ(read.value("vllm:prompt_tokens_total", "model_name=\"fathom-34m\""), prompt);
  EXPECT_EQ(read.value("vllm:generation_tokens_total"), answered);
  EXPECT_EQ(read.value("vllm:prefix_cache_queries_total"), prompt);
  EXPECT_EQ(read.value("vllm:prefix_cache_hits_total"), hit);
  EXPECT_EQ(n_found, 64);
  EXPECT_EQ(read.value("fathom_requests_by_hit_total", "hit=\"none\""), 2);
  EXPECT_EQ(read.value("fathom_requests_by_hit_total", "hit=\"exact\""), 1);
  EXPECT_EQ(read.value("fathom_computed_tokens_total"), prompt - n_found + answered - 3);
  EXPECT_EQ(read.value("vllm:num_requests_running"), 0);
  EXPECT_EQ(read.value("vllm:kv_cache_usage_perc"), 0);
  EXPECT_EQ(read.value("vllm:time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(read.value("vllm:e2e_request_latency_seconds_count"), 3);
  EXPECT_EQ(read.value("vllm:inter_token_latency_seconds_count"), answered - 3);
  EXPECT_EQ(
      read.value("fathom_http_responses_total", "route=\"/v1/chat/completions\",status=\"200\""),
      3);
  EXPECT_EQ(read.value("fathom_http_responses_total", "route=\"other\",status=\"404\""), 1);
  EXPECT_EQ(read.value("fathom_http_responses_total", "route=\"/v1/models\",status=\"401\""), 1);
  EXPECT_EQ(read.value("fathom_http_responses_total", "route=\"other\",status=\"401\""), 3);
  EXPECT_EQ(read.value("fathom_refused_requests_total", "reason=\"key\""), 4);
  double ended = 0;
  for (const char* reason : {"stop", "length"}) {
    ended +=
        read.value("vllm:request_success_total", std::string("finished_reason=\"") + reason + "\"");
  }
  EXPECT_EQ(ended, 3);
  EXPECT_FALSE(read.has("fathom_verification_failures_total"));  // nothing is read back yet
}

// The line without what differs from run to run.
std::string named(const std::string& line) {
  const std::regex peer(" peer=127\\.0\\.0\\.1:[0-9]+ ");
  const std::regex id(" id=(chatcmpl-|req_)[0-9a-f]+");
  return std::regex_replace(std::regex_replace(line, peer, " PEER "), id, " ID");
}

TEST_F(TenantsTest, EachRequestIsLoggedOnceWithItsTenant) {
  const json::value usage = ask("alice").at("usage");
  client("")->get("/v1/models");
  client("bob")->get("/v1/models");
  client("bob")->get("/admin/cache");
  client("")->get("/health");  // says nothing
  served_->stop();
  const std::vector<std::string> log = served_->log();
  ASSERT_EQ(log.size(), 4U);
  const std::string begin =
      "POST /v1/chat/completions 200 PEER ID tenant=alice prompt=" +
      std::to_string(usage.at("prompt_tokens").as_int64()) +
      " cached=0 replayed=0 answered=" + std::to_string(usage.at("completion_tokens").as_int64()) +
      " first_s=";
  EXPECT_EQ(named(log[0]).substr(0, begin.size()), begin);
  EXPECT_EQ(named(log[1]),
            "GET /v1/models 401 PEER ID: key: wanted Authorization: Bearer KEY or x-api-key: KEY, "
            "found neither");
  EXPECT_EQ(named(log[2]), "GET /v1/models 200 PEER ID tenant=bob");
  EXPECT_EQ(named(log[3]),
            "GET /admin/cache 403 PEER ID tenant=bob: key: wanted one of the role admin, found one "
            "of the role user");
}

// Alice's key is replaced and her limit set, bob goes, carol comes; then a file that is broken.
TEST(KeysReadAgain, TakeThePlaceOfThoseBeforeOrNothingChanges) {
  const NewKey alice = *make_key("alice");
  const NewKey bob = *make_key("bob");
  const NewKey carol = *make_key("carol");
  NewKey renewed = *make_key("alice");
  const std::string salt = alice.table.substr(alice.table.find("salt"));
  renewed.table = renewed.table.substr(0, renewed.table.find("salt")) + salt;
  std::mutex mutex;
  std::string file = alice.table + bob.table;
  Served served({.end_at_signals = true,
                 .read_keys =
                     [&] {
                       const std::lock_guard lock(mutex);
                       return read_keys(file, "keys.toml");
                     },
                 .keys = *read_keys(file, "keys.toml")});
  const auto status = [&](const NewKey& key, const std::string& path = "/v1/models") {
    HttpClient client(served.port());
    client.always_send("Authorization: Bearer " + key.key + "\r\n");
    return path == kChat ? client.post(kChat, long_call(false))->status : client.get(path)->status;
  };
  const auto read_again = [&](const std::string& text, bool by_signal = false) {
    {
      const std::lock_guard lock(mutex);
      file = text;
    }
    const size_t n_before = served.log().size();
    by_signal ? static_cast<void>(::raise(SIGHUP)) : served.server().read_again();
    for (int i = 0; i < 6000; ++i) {
      const std::vector<std::string> log = served.log();
      for (size_t at = n_before; at < log.size(); ++at) {
        if (log[at].starts_with("- - keys: ")) return log[at];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return std::string();
  };
  HttpClient under_way(served.port());
  under_way.send(post_text(kChat, long_call(), "x-api-key: " + bob.key + "\r\n"));
  ASSERT_TRUE(under_way.read_until("data: "));
  EXPECT_EQ(read_again(renewed.table + "concurrent_requests = 1\n" + carol.table, true),
            "- - keys: read again, 2 of them");
  EXPECT_EQ(status(alice), 401);
  EXPECT_EQ(status(renewed), 200);
  EXPECT_EQ(status(carol), 200);
  EXPECT_EQ(status(bob), 401);
  EXPECT_TRUE(under_way.read_until("data: [DONE]"));  // what bob had begun is his
  HttpClient one(served.port());
  one.send(post_text(kChat, long_call(), "x-api-key: " + renewed.key + "\r\n"));
  ASSERT_TRUE(one.read_until("data: "));
  EXPECT_EQ(status(renewed, kChat), 429);
  EXPECT_EQ(read_again("[[key]]\nname = \"alice\"\n").substr(0, 44),
            "- - keys: kept as they were: keys.toml: line");
  EXPECT_EQ(status(renewed), 200);
  EXPECT_EQ(status(renewed, kChat), 429);
  EXPECT_EQ(read_again(""),
            "- - keys: kept as they were: keys.toml: wanted a table [[key]], found none");
  EXPECT_EQ(read_again(renewed.table + bob.table), "- - keys: read again, 2 of them");
  EXPECT_EQ(status(renewed, kChat), 200);  // the limit is gone, beside the one under way
  EXPECT_EQ(status(bob), 200);
  EXPECT_EQ(status(carol), 401);
  EXPECT_TRUE(one.read_until("data: [DONE]"));
}

TEST(OpenServer, ServesAnybodyAndIsAdministeredByNobody) {
  Served served({.version = "0"});
  EXPECT_FALSE(served.server().unguarded());  // loopback
  HttpClient client(served.port());
  EXPECT_EQ(client.get("/metrics")->status, 200);
  EXPECT_EQ(client.get("/v1/models")->status, 200);
  const auto refused = client.get("/admin/cache");
  EXPECT_EQ(refused->status, 403);
  EXPECT_EQ(json::parse(refused->body).at("error").at("message").as_string(),
            "/admin/cache: wanted a server with keys, found none");
  const PrometheusReader read(client.get("/metrics")->body);
  EXPECT_EQ(read.value("fathom_refused_requests_total", "reason=\"key\""), 0);  // none would do
  Served far({.host = "0.0.0.0"});
  EXPECT_TRUE(far.server().unguarded());
  KeyRing ring;
  ASSERT_TRUE(ring.add(*only_tenant("a key of sixteen bytes")));
  Served guarded({.host = "0.0.0.0", .keys = ring});
  EXPECT_FALSE(guarded.server().unguarded());
}

}  // namespace
}  // namespace fathom
