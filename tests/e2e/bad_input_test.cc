// Goal: bad input gives one line that names the file, the field and the two values, exit status 1
// and no output. Method: the built program on damaged copies of models.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "model_copy.h"
#include "program.h"

namespace fathom {
namespace {

namespace json = boost::json;

using Words = std::vector<std::string>;
using Damage = std::function<void(const ModelCopy&)>;

constexpr const char* kShard = "model-00001-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTensor = "layers.0.attn.wkv.weight";

const Words kRun = {"run", "-m", "@", "--ids", "1,2,3", "-n", "2"};
const Words kTokenize = {"tokenize", "-m", "@", "-p", "hello world"};

struct BadInput {
  const char* name;
  Damage damage;
  Words parts;  // of the line; @ is the folder of the copy
  Words args = kRun;
};

std::string with_folder(std::string text, const std::string& folder) {
  const size_t at = text.find('@');
  return at == std::string::npos ? text : text.replace(at, 1, folder);
}

// One line, status 1, no output.
void expect_refused(const Outcome& outcome, const Words& parts, const std::string& folder) {
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("fathom: ")) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with("\n")) << outcome.err;
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.err.find(with_folder(part, folder)), std::string::npos)
        << "wanted " << part << ", found " << outcome.err;
  }
}

void expect_all_refused(const std::vector<BadInput>& inputs, const std::string& model, bool links) {
  for (const BadInput& input : inputs) {
    SCOPED_TRACE(input.name);
    const ModelCopy copy(model, links);
    input.damage(copy);
    Words args;
    for (const std::string& arg : input.args) args.push_back(with_folder(arg, copy.path()));
    expect_refused(run_program({.args = args}), input.parts, copy.path());
  }
}

Damage cut(int64_t bytes) {  // negative: from the end
  return [=](const ModelCopy& copy) {
    const std::string all = copy.read(kShard);
    const auto n = static_cast<int64_t>(all.size());
    copy.write(kShard, all.substr(0, static_cast<size_t>(bytes < 0 ? n + bytes : bytes)));
  };
}

Damage header_length(uint64_t length) {
  return [=](const ModelCopy& copy) {
    std::string bytes = copy.read(kShard);
    bytes.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
    copy.write(kShard, bytes);
  };
}

Damage header(const ModelCopy::Edit& edit) {
  return [=](const ModelCopy& copy) { copy.edit_header(kShard, edit); };
}

Damage header_text(const std::string& from, const std::string& to) {
  return [=](const ModelCopy& copy) {
    std::string bytes = copy.read(kShard);
    bytes.replace(bytes.find(from), from.size(), to);
    copy.write(kShard, bytes);
  };
}

Damage offsets(int64_t shift) {
  return header([=](json::object& all) {
    for (json::value& offset : all[kTensor].at("data_offsets").as_array()) {
      offset = offset.to_number<int64_t>() + shift;
    }
  });
}

Damage field(const char* name, const json::value& value) {
  return header([=](json::object& all) { all[kTensor].as_object()[name] = value; });
}

void rename_tensor(json::object& all, const char* from, const char* to) {
  all[to] = all.at(from);
  all.erase(from);
}

Damage text_config(const char* key, const json::value& value) {
  return [=](const ModelCopy& copy) {
    copy.edit_json("config.json",
                   [&](json::object& config) { config["text_config"].as_object()[key] = value; });
  };
}

const std::string kAtTensor = std::string(kShard) + ": tensor " + kTensor + ": ";

TEST(BadInput, DamagedSafetensorsFiles) {
  expect_all_refused(
      {
          {"cut payload",
           cut(-1000),
           {kShard, "layers.5.ffn.experts.7.w3.weight", "wanted data_offsets inside 1825856",
            "found [1822760, 1826856]"}},
          {"cut header",
           cut(5000),
           {kShard, "wanted a header of at most 4992 bytes", "found a length of 47200"}},
          {"cut length", cut(4), {kShard, "wanted 8 bytes", "found a file of 4 bytes"}},
          {"empty", cut(0), {kShard, "wanted 8 bytes", "found a file of 0 bytes"}},
          {"oversized header",
           header_length(uint64_t{1} << 27),
           {kShard, "at most 1874056 bytes", "134217728"}},
          {"absurd header",
           header_length(uint64_t{1} << 63),
           {kShard, "at most 1874056 bytes", "9223372036854775808"}},
          {"bit flip in JSON", header_text("{\"", "[\""), {kShard, "header: wanted"}},
          {"bit flip in a dtype",
           header_text("\"BF16\"", "\"BF1v\""),
           {kShard, "embed.weight", "wanted a dtype of BF16", "found BF1v"}},
          {"overlap", offsets(-16), {kAtTensor, "wanted data at byte", "found an overlap at byte"}},
          {"beyond the end",
           offsets(1'000'000'000),
           {kAtTensor, "wanted data_offsets inside 1826856", "found [1000786472"}},
          {"size",
           field("shape", {32, 128}),
           {kAtTensor, "wanted the bytes of F8_E4M3 [32, 128]", "found 8192 bytes"}},
          {"misshapen",
           field("shape", {32, 256}),
           {kAtTensor, "wanted F8_E4M3 [64, 128]", "found F8_E4M3 [32, 256]"}},
          {"wrong dtype",
           field("dtype", "I8"),
           {kAtTensor, "wanted F8_E4M3 [64, 128]", "found I8 [64, 128]"}},
          {"missing",
           header([](json::object& all) { rename_tensor(all, kTensor, "layers.0.other"); }),
           {kIndex, kTensor, "wanted it in model-00001", "found nothing"}},
          {"extra, by no index",
           [](const ModelCopy& copy) {
             copy.edit_header(
                 kShard, [](json::object& all) { rename_tensor(all, kTensor, "layers.0.other"); });
             copy.remove(kIndex);
           },
           {kTensor, "wanted F8_E4M3 [64, 128]", "found nothing (and 1 more"}},
          {"NaN code",
           [](const ModelCopy& copy) { copy.set_byte(kShard, kTensor, 7, 0x7f); },
           {kAtTensor, "wanted finite F8_E4M3 values",
            "found 1 NaN or infinite, the first at element 7"}},
          {"NaN scale",
           [](const ModelCopy& copy) {
             copy.set_byte(kShard, "layers.0.attn.wkv.scale", 3, '\xff');
           },
           {kShard, "layers.0.attn.wkv.scale", "wanted finite F8_E8M0 values",
            "the first at element 3"}},
          {"shard gone",
           [](const ModelCopy& copy) { copy.remove(kShard); },
           {kShard, "cannot open"}},
          {"shard is a folder",
           [](const ModelCopy& copy) { copy.make_folder(kShard); },
           {kShard, "expected a regular file"}},
          {"index is a list",
           [](const ModelCopy& copy) { copy.write(kIndex, "[]"); },
           {kIndex, "weight_map: wanted an object"}},
          {"index leads elsewhere",
           [](const ModelCopy& copy) { copy.write(kIndex, R"({"weight_map":{"a":"../x"}})"); },
           {kIndex, "wanted a file name, found \"../x\""}},
      },
      "tests/golden/t12", false);
}

TEST(BadInput, ImpossibleConfigurations) {
  const auto whole = [](const char* text) -> Damage {
    return [=](const ModelCopy& copy) { copy.write("config.json", text); };
  };
  const std::string at = "@/config.json: ";
  expect_all_refused(
      {
          {"ratio unlike its source",
           text_config("compress_ratios", {0, 0, 2, 1, 2, 2, 1, 1, 1, 1, 1, 1}),
           {at, "text_config.compress_ratios[3]: wanted 2", "found 1"}},
          {"source beyond the model",
           text_config("kv_source_layer_ids", {2, 4, 40}),
           {at, "kv_source_layer_ids: wanted layers from 0 to 11, found [2, 4, 40]"}},
          {"top-k beyond the pool",
           text_config("index_topk", 100),
           {at, "text_config.index_topk: wanted at most 13", "found 100"}},
          {"experts",
           text_config("num_experts_per_tok", 9),
           {at, "num_experts_per_tok: wanted 1 to 8, found 9"}},
          {"engram table",
           text_config("engram_num_embeddings", {629, 853}),
           {at, "engram_num_embeddings", "wanted [630, 834]", "found [629, 853]"}},
          {"other width",
           text_config("hidden_size", 160),
           {"embed.weight: wanted BF16 [256, 160], found BF16 [256, 128]"}},
          {"broken width",
           text_config("hidden_size", 130),
           {at, "text_config.hidden_size: wanted a multiple of 32", "found 130"}},
          {"type",
           text_config("hidden_size", "x"),
           {at, "text_config.hidden_size: wanted an integer, found \"x\""}},
          {"null",
           text_config("sliding_window", nullptr),
           {at, "text_config.sliding_window: wanted an integer, found null"}},
          {"missing key",
           [](const ModelCopy& copy) {
             copy.edit_json("config.json", [](json::object& config) {
               config["text_config"].as_object().erase("hidden_size");
             });
           },
           {at, "text_config.hidden_size: wanted an integer, found nothing"}},
          {"model type",
           [](const ModelCopy& copy) {
             copy.edit_json("config.json",
                            [](json::object& config) { config["model_type"] = "deepseek_v4"; });
           },
           {at, "model_type: wanted \"deepseek_v41\", found \"deepseek_v4\""}},
          {"cut", whole("{\"text_config\":"), {at, "wanted JSON, found: incomplete JSON"}},
          {"empty", whole(""), {at, "wanted JSON"}},
          {"gone", [](const ModelCopy& copy) { copy.remove("config.json"); }, {at, "cannot open"}},
          {"a folder",
           [](const ModelCopy& copy) { copy.make_folder("config.json"); },
           {at, "expected a regular file"}},
          {"too large",
           [](const ModelCopy& copy) { copy.write("config.json", std::string(2 << 20, ' ')); },
           {at, "at most 1048576 bytes, found 2097152"}},
      },
      "tests/golden/t12", false);
}

Damage tokenizer(const ModelCopy::Edit& edit) {
  return [=](const ModelCopy& copy) { copy.edit_json("tokenizer.json", edit); };
}

std::pair<std::string, std::string> merge_parts(const json::value& merge) {
  if (merge.is_array()) return {merge.at(0).as_string().c_str(), merge.at(1).as_string().c_str()};
  const std::string text = merge.as_string().c_str();
  return {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
}

TEST(BadInput, DamagedTokenizers) {
  const auto whole = [](const char* text) -> Damage {
    return [=](const ModelCopy& copy) { copy.write("tokenizer.json", text); };
  };
  const std::string at = "@/tokenizer.json: ";
  const auto missing_result = [](json::object& file) {
    json::object& model = file["model"].as_object();
    const auto [left, right] = merge_parts(model["merges"].at(5));
    json::object& vocab = model["vocab"].as_object();
    vocab["not made by a merge"] = vocab.at(left + right);
    vocab.erase(left + right);
  };
  // A merge whose result is its own part: parts only grow, so that one of them must be empty.
  const auto cycle = [](json::object& file) {
    json::value& merge = file["model"].at("merges").at(3);
    const std::string left = merge_parts(merge).first;
    if (merge.is_array()) merge = {"", left};
    if (merge.is_string()) merge = " " + left;
  };
  expect_all_refused(
      {
          {"cycle",
           tokenizer(cycle),
           {at, "model.merges[3]: left part \"\" is not in model.vocab"},
           kTokenize},
          {"merge twice",
           tokenizer([](json::object& file) {
             json::array& merges = file["model"].at("merges").as_array();
             merges.push_back(merges.at(0));
           }),
           {at, "repeats model.merges[0]"},
           kTokenize},
          {"missing part",
           tokenizer([](json::object& file) {
             json::array& merges = file["model"].at("merges").as_array();
             merges.insert(merges.begin(), json::value("qzqz zqzq"));
           }),
           {at, "model.merges[0]", "\"qzqz\" is not in model.vocab"},
           kTokenize},
          {"missing result",
           tokenizer(missing_result),
           {at, "model.merges[5]", "is not in model.vocab"},
           kTokenize},
          {"id twice",
           tokenizer([](json::object& file) { file["model"].at("vocab").as_object()["zzzz"] = 5; }),
           {at, "model.vocab[\"zzzz\"]: id 5 is already"},
           kTokenize},
          {"ids with a hole",
           tokenizer(
               [](json::object& file) { file["model"].at("vocab").as_object()["zzzz"] = 50000; }),
           {at, "model.vocab[\"zzzz\"]: wanted an integer from 0 to 4099, found 50000"},
           kTokenize},
          {"another algorithm",
           tokenizer([](json::object& file) { file["model"].as_object()["type"] = "Unigram"; }),
           {at, "model.type: is \"Unigram\", supported is \"BPE\""},
           kTokenize},
          {"cut", whole("{\"a\":"), {at, "byte 5 of 5: not JSON"}, kTokenize},
          {"empty", whole(""), {at, "byte 0 of 0: not JSON"}, kTokenize},
          {"gone",
           [](const ModelCopy& copy) { copy.remove("tokenizer.json"); },
           {at, "cannot open"},
           kTokenize},
          {"gone, with run",
           [](const ModelCopy& copy) { copy.remove("tokenizer.json"); },
           {at, "cannot open"},
           {"run", "-m", "@", "-p", "hello"}},
      },
      "models/fathom-34m", true);
}

struct BadUse {
  Words args;
  Words parts;
  std::string input = {};
};

TEST(BadInput, ValuesThatTheModelCannotTake) {
  const std::string t12 = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/t12";
  const std::string model = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";
  const std::string folder = testing::TempDir();
  const std::vector<BadUse> uses = {
      {{"run", "-m", t12, "--ids", "7,256"},
       {"token id at position 1: wanted 0 to 255, found 256"}},
      {{"run", "-m", t12, "--ids=-5"}, {"token id at position 0: wanted 0 to 255, found -5"}},
      {{"run", "-m", t12, "--ids", "1,2,3,4,5", "--context", "4"},
       {"context: wanted at most 4 tokens, found 5"}},
      {{"run", "-m", model, "-f", folder + "/no such file"}, {"/no such file: cannot open"}},
      {{"run", "-m", model, "-f", folder}, {folder + ": wanted a file or a pipe, found a folder"}},
      {{"run", "-m", folder + "/no such model", "-p", "hi"},
       {"/no such model/config.json: cannot open"}},
      {{"chat", "-m", folder + "/no such model"}, {"/no such model/config.json: cannot open"}},
      {{"check", folder + "/no such model"}, {"/no such model/config.json: cannot open"}},
      {{"check", t12, "--cases", folder + "/no such cases"}, {"/no such cases: cannot list cases"}},
      {{"check", t12, "--cases", t12 + "/../plans"}, {"wanted case files, found none"}},
      {{"inspect", folder + "/no such model"}, {"/no such model"}},
      {{"synth", "--plan", "t12", "-o", t12}, {t12, "safetensors"}},
      {{"synth", "--plan", "no/plan.json", "-o", folder + "/x"}, {"no/plan.json: cannot open"}},
      {{"tokenize", "-m", model, "--decode", "-p", "1,99999"},
       {"token 1 has id 99999, wanted 0 to 4095"}},
      {{"tokenize", "-m", model, "--decode"},
       {"standard input: wanted token ids with commas between, each at most 2147483647, found x"},
       "1,x"},
      {{"run", "-m", model, "--ids", "1,99999"},
       {"token id at position 1: wanted 0 to 4095, found 99999"}},
      {{"tokenize", "-m", model, "--jsonl"}, {"line 1: wanted a JSON object"}, "nonsense\n"},
      {{"tokenize", "-m", model, "--jsonl"},
       {"line 1: wanted `text` or `ids`, found both"},
       "{\"text\":\"a\",\"ids\":[1]}\n"},
      {{"eval", "-m", model, "--suite", "text", "--sets", "go-net,nope"},
       {"--sets: wanted sets of go-net, ", "found nope"}},
      {{"prompt", "-m", model}, {"standard input: ", "wanted a value, found 'n'"}, "nonsense\n"},
      {{"prompt", "-m", model}, {"standard input: ", "messages"}, "{}"},
      {{"eval", "-m", model, "--suite", "text", "--cases", folder + "/no such cases"},
       {"no such cases"}},
  };
  for (const BadUse& use : uses) {
    SCOPED_TRACE(use.args[0] + " " + use.args.back());
    expect_refused(run_program({.args = use.args, .input = use.input}), use.parts, "");
  }
}

TEST(BadInput, StandardInputAndOutputThatAreNotThere) {
  const std::string model = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";
  const Words run = {"run", "-m", model, "-n", "2"};
  expect_refused(run_program({.args = run, .closed_input = true}), {"standard input: cannot read"},
                 "");
  for (const Words& args :
       {Words{"run", "-m", model, "-n", "2", "-p", "hi"},
        Words{"run", "-m", model, "-n", "2", "-p", "hi", "--json"}, Words{"inspect", model},
        Words{"tokenize", "-m", model, "-p", "hi"}, Words{"--help"}, Words{"--version"}}) {
    SCOPED_TRACE(args[0]);
    expect_refused(run_program({.args = args, .output_path = "/dev/full"}),
                   {"standard output: wanted to write all of it"}, "");
  }
}

// What cannot be done is said before the work that it would spoil.
TEST(BadInput, SizesAreLookedAtFirst) {
  const std::string model = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";
  expect_refused(run_program({.args = {"eval", "-m", model, "--needle-context", "1048576",
                                       "--needle-cases", "1"}}),
                 {".txt.gz: wanted at least "}, "");
  Words eval = {"eval", "-m", model, "--suite", "text", "--sets", "go-net", "--tokens", "3"};
  const Outcome narrow = run_program({.args = eval});
  eval.insert(eval.end(), {"--window", "1048576"});
  const Outcome wide = run_program({.args = eval});
  EXPECT_EQ(wide.status, 0) << wide.err;
  EXPECT_EQ(wide.out, narrow.out);
  EXPECT_EQ(wide.err, "");
  const Outcome version = run_program({.args = {"--version"}});
  if (version.out.find("(cuda: not built in)") == std::string::npos) return;  // it may be there
  const Outcome check = run_program({.args = {"check", "-m", model, "--backend", "cuda"}});
  expect_refused(check, {"cuda"}, "");
}

TEST(BadInput, AFormNamesItsFile) {
  const std::string model = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";
  for (const auto& [option, text] : std::vector<std::pair<std::string, std::string>>{
           {"--grammar", "root ::= nothing\n"},
           {"--json-schema", "{"},
           {"--json-schema", "{\"type\":\"object\",\"minProperties\":1}"}}) {
    SCOPED_TRACE(text);
    const Outcome outcome =
        run_program({.args = {"run", "-m", model, "-p", "x", option, "/dev/stdin"}, .input = text});
    expect_refused(outcome, {"fathom: /dev/stdin: " + option}, "");
  }
  const Outcome regex = run_program({.args = {"run", "-p", "x", "--regex", "("}});
  EXPECT_EQ(regex.err.find("--regex: --regex"), std::string::npos) << regex.err;
}

// An end of the input that is no end is not taken for one, whoever reads it.
TEST(BadInput, StandardInputThatCannotBeReadIsAFailure) {
  const std::string model = std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m";
  for (const Words& args :
       {Words{"run", "-m", model}, Words{"tokenize", "-m", model}, Words{"prompt", "-m", model},
        Words{"tokenize", "-m", model, "--jsonl"}, Words{"chat", "-m", model}}) {
    SCOPED_TRACE(args[0] + " " + args.back());
    expect_refused(run_program({.args = args, .closed_input = true}),
                   {"standard input: cannot read: Bad file descriptor"}, "");
    expect_refused(run_program({.args = args, .input_path = "/"}),
                   {"standard input: cannot read: Is a directory"}, "");
  }
  const Words lines = {"tokenize", "-m", model, "--jsonl"};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need the addresses
  expect_refused(
      run_program({.args = lines, .input_path = "/dev/zero", .address_bytes = uint64_t{256} << 20}),
      {"memory: "}, "");
#endif
  const Outcome last =
      run_program({.args = lines, .input = "\n{\"text\":\"a\"}\n{\"text\":\"b\"}"});
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_EQ(std::ranges::count(last.out, '\n'), 2) << last.out;
}

// A report is output: problems stand in it, one a line.
TEST(BadInput, CheckListsEveryProblemAndFails) {
  const ModelCopy copy("tests/golden/t12");
  copy.edit_header(kShard, [](json::object& all) { all[kTensor].as_object()["dtype"] = "I8"; });
  copy.edit_json("config.json", [](json::object&) {});
  const Outcome outcome = run_program({.args = {"check", copy.path()}});
  EXPECT_EQ(outcome.status, 1);
  const std::string problem = std::string(kTensor) + ": wanted F8_E4M3 [64, 128], found I8";
  EXPECT_NE(outcome.out.find(problem), std::string::npos) << outcome.out;
  EXPECT_TRUE(outcome.err.starts_with("fathom: " + copy.path() + ": wanted no problems, found 1"));
  EXPECT_NE(outcome.err.find(problem), std::string::npos) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

// What `run` refuses, `check` finds, without being asked to look deeper.
TEST(BadInput, CheckAgreesWithRun) {
  const ModelCopy copy("tests/golden/t12");
  EXPECT_EQ(run_program({.args = {"check", copy.path()}}).status, 0);
  copy.set_byte(kShard, kTensor, 7, 0x7f);
  expect_refused(run_program({.args = {"run", "-m", copy.path(), "--ids", "1", "-n", "1"}}),
                 {"found 1 NaN"}, "");
  const Outcome outcome = run_program({.args = {"check", copy.path()}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("wanted finite F8_E4M3 values, found 1 NaN"), std::string::npos)
      << outcome.out;
}

// A text of the file reaches the terminal neither with its escapes nor at its length.
TEST(BadInput, TextOfAFileIsShownOnOneShortLine) {
  const ModelCopy copy("tests/golden/t12");
  for (const std::string& text : {std::string("\x1b[31mx\n"), std::string(900'000, 'x')}) {
    copy.edit_json("config.json", [&](json::object& config) { config["model_type"] = text; });
    const Outcome outcome = run_program({.args = {"inspect", copy.path()}});
    expect_refused(outcome, {"model_type: wanted \"deepseek_v41\", found \""}, "");
    EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
    EXPECT_LT(outcome.err.size(), 400u);
  }
}

// Each key of the model's part gone or negative: a result or one line, never a signal.
TEST(BadInput, NoValueOfAKeyEndsTheProgramBySignal) {
  const ModelCopy copy("tests/golden/t12");
  const std::string whole = copy.read("config.json");
  const json::value parsed = json::parse(whole);
  for (const auto& [key, member] : parsed.at("text_config").as_object()) {
    for (const json::value& value : {json::value("gone"), json::value(-5)}) {
      SCOPED_TRACE(std::string(key) + " " + json::serialize(value));
      copy.edit_json("config.json", [&](json::object& config) {
        json::object& text = config["text_config"].as_object();
        value.is_string() ? static_cast<void>(text.erase(key))
                          : static_cast<void>(text[key] = value);
      });
      const Outcome outcome = run_program(
          {.args = {"run", "-m", copy.path(), "--ids", "1,2,3", "-n", "2", "--threads", "1"}});
      EXPECT_LE(outcome.status, 1) << outcome.err;
      EXPECT_LE(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
      copy.write("config.json", whole);
    }
  }
}

// Without a pool every entry competes, as it does in a pool that holds all of them.
TEST(BadInput, AModelWithoutTheKeysOfItsPoolRuns) {
  const ModelCopy copy("tests/golden/t12");
  const auto ids = [&](const ModelCopy::Edit& edit) {
    const std::string whole = copy.read("config.json");
    copy.edit_json("config.json",
                   [&](json::object& config) { edit(config["text_config"].as_object()); });
    std::string prompt = "1";
    for (int i = 2; i < 120; ++i) prompt += "," + std::to_string(i * 7 % 250);
    const Outcome outcome = run_program(
        {.args = {"run", "-m", copy.path(), "--ids", prompt, "-n", "20", "--ignore-eos"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    copy.write("config.json", whole);
    return outcome.out;
  };
  const std::string none = ids([](json::object& text) {
    for (const char* key :
         {"candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"}) {
      text.erase(key);
    }
  });
  EXPECT_EQ(none, ids([](json::object& text) { text["candidate_topk_blocks"] = 1024; }));
  EXPECT_NE(none, ids([](json::object&) {}));
}

TEST(BadInput, CheckDeepFindsBadCodesAndNamesTheWeights) {
  const ModelCopy copy("tests/golden/t12");
  const auto deep = [&](int status) {
    const Outcome outcome = run_program({.args = {"check", copy.path(), "--deep", "--json"}});
    EXPECT_EQ(outcome.status, status) << outcome.err << outcome.out;
    return json::parse(outcome.out);
  };
  const json::value sound = deep(0);
  EXPECT_TRUE(sound.at("problems").as_array().empty());
  const std::string fingerprint = sound.at("fingerprint").as_string().c_str();
  EXPECT_EQ(fingerprint.size(), 64u);
  // The note beside the files is not believed: the bytes are.
  copy.write(".fathom-fingerprint", "nonsense\n");
  EXPECT_EQ(deep(0).at("fingerprint").as_string(), fingerprint);
  copy.set_byte(kShard, kTensor, 7, 0x10);
  EXPECT_NE(deep(0).at("fingerprint").as_string(), fingerprint);
  copy.set_byte(kShard, kTensor, 9, '\xff');
  copy.set_byte(kShard, "layers.0.attn.wkv.scale", 3, '\xff');
  const json::array problems = deep(1).at("problems").as_array();
  ASSERT_EQ(problems.size(), 2u);
  const auto line = [&](size_t i) { return std::string(problems[i].as_string().c_str()); };
  EXPECT_NE(line(0).find("layers.0.attn.wkv.scale: wanted finite F8_E8M0 values, found 1"),
            std::string::npos)
      << line(0);
  EXPECT_NE(line(1).find("layers.0.attn.wkv.weight: wanted finite F8_E4M3 values, found 1"),
            std::string::npos)
      << line(1);
}

// Where files can be made unreadable at all: the administrator reads everything.
TEST(BadInput, AnUnreadableFileIsNamed) {
  const ModelCopy copy("tests/golden/t12");
  std::filesystem::permissions(copy.file("config.json"), std::filesystem::perms::none);
  const Outcome outcome = run_program({.args = {"inspect", copy.path()}});
  if (::access(copy.file("config.json").c_str(), R_OK) == 0) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  } else {
    expect_refused(outcome, {"@/config.json: cannot open: Permission denied"}, copy.path());
  }
}

}  // namespace
}  // namespace fathom
