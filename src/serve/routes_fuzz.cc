// Any bytes as the body of a POST to each route that reads one. The first byte chooses the route,
// the rest is the body; after `-ignore_remaining_args=1 route=N` route N is taken for every input.
// The answer is an error in the form of the route's protocol with status 400 or 404, a body of
// JSON, or a job whose request the engine may be given and which makes JSON of tokens. The engine
// itself and sockets are not run.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "serve/routes.h"
#include "text/json_text.h"

namespace fathom {
namespace {

constexpr auto kPaths = std::to_array<const char*>(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
     "/v1/messages/count_tokens", "/tokenize", "/detokenize"});
constexpr int64_t kContext = 512;
constexpr size_t kBodyMax = 8192;
int only_route = -1;  // -1: the input chooses

ChatService& service() {
  static const LoadedModel kLoaded = [] {
    auto loaded = load_model(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m", {});
    FATHOM_CHECK(loaded.has_value());
    return std::move(*loaded);
  }();
  static ChatService made(kLoaded,
                          *ChatTemplate::load(kLoaded.path, kLoaded.model->config().model_type),
                          {.model_name = "fathom-34m", .fingerprint = "fp", .context = kContext});
  return made;
}

bool is_text(const Json* value) { return value != nullptr && value->as_string() != nullptr; }

void check_refusal(Dialect dialect, const HttpReply& reply) {
  FATHOM_CHECK(reply.status == 400 || reply.status == 404);
  const Result<Json> body = parse_json(reply.body);
  FATHOM_CHECK(body.has_value());
  const Json* error = body->find("error");
  FATHOM_CHECK(error != nullptr);
  FATHOM_CHECK(is_text(error->find("type")));
  const Json* message = error->find("message");
  FATHOM_CHECK(is_text(message));
  FATHOM_CHECK(!message->as_string()->empty());
  FATHOM_CHECK(message->as_string()->find('\n') == std::string::npos);
  if (dialect == Dialect::kOpenAi) {
    FATHOM_CHECK(is_text(error->find("code")));
    return;
  }
  const Json* type = body->find("type");
  FATHOM_CHECK(is_text(type));
  FATHOM_CHECK(*type->as_string() == "error");
}

void check_events(const ReplyEvents& events) {
  for (const ReplyEvent& event : events) FATHOM_CHECK(parse_json(event.data).has_value());
}

void check_request(const Request& request) {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  FATHOM_CHECK(n_prompt > 0);
  FATHOM_CHECK(request.max_tokens > 0);
  FATHOM_CHECK(n_prompt + request.max_tokens <= kContext);
  FATHOM_CHECK(request.n_choices > 0);
  FATHOM_CHECK(request.top_logprobs >= 0);
  FATHOM_CHECK(request.top_logprobs <= kTopLogprobsMax);
  FATHOM_CHECK(service().loaded().tokenizer->check_ids(request.prompt).has_value());
}

// The first tokens of the prompt stand for an answer.
void check_job(ChatJob& job) {
  const Request request = job.take_request();
  check_request(request);
  check_events(job.reply().open());
  for (int64_t choice = 0; choice < request.n_choices; ++choice) {
    Output output = {.choice = choice, .finish = EndReason::kLength};
    for (size_t i = 0; i < request.prompt.size() && i < 24; ++i) {
      output.tokens.push_back({.id = request.prompt[i]});
    }
    check_events(job.take(output));
  }
  FATHOM_CHECK(job.ended());
  FATHOM_CHECK(parse_json(job.reply().whole()).has_value());
  check_events({job.reply().fail("lost")});
}

void check_body(const std::string& path, std::string_view body) {
  const HttpRequest request = {.method = "POST", .path = path, .body = std::string(body)};
  const Dialect dialect = dialect_of(path);
  const std::optional<Protocol> protocol = protocol_of(request);
  if (protocol) {
    const auto job = service().begin(*protocol, body);
    if (job) return check_job(**job);
    return check_refusal(dialect, refusal(dialect, job.error(), false, 0));
  }
  const HttpReply reply = plain_reply(request, service(), {{"version", "0"}}, false);
  if (reply.status != 200) return check_refusal(dialect, reply);
  FATHOM_CHECK(parse_json(reply.body).has_value());
}

}  // namespace
}  // namespace fathom

extern "C" int LLVMFuzzerInitialize(const int* argc, char*** argv) {
  const std::string_view last = (*argv)[*argc - 1];
  if (last.starts_with("route=")) fathom::only_route = std::atoi(last.data() + 6);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t route = fathom::only_route < 0 ? data[0] : static_cast<size_t>(fathom::only_route);
  fathom::check_body(fathom::kPaths[route % fathom::kPaths.size()],
                     body.substr(0, fathom::kBodyMax));
  return 0;
}
