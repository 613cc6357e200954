#include "cache/remote/redis_states.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cache/remote/redis_link.h"
#include "cache/remote/state_record.h"
#include "tensor/kv_spec.h"

namespace fathom {
namespace {

constexpr int64_t kGrades = 2;
constexpr size_t kTriesMax = 4;             // states that a find reads
constexpr size_t kCandidatesMax = 512;      // that it asks for
constexpr int64_t kSmallAnswers = 1 << 20;  // of everything but a state

int64_t now_us() { return static_cast<int64_t>(steady_seconds() * 1e6); }

int64_t bit_of(int64_t n_partial, StateGrade grade) {
  return static_cast<int64_t>(grade) * kBlockTokens + n_partial;
}

bool has_bit(const std::string& bits, int64_t bit) {
  const auto byte = static_cast<size_t>(bit / 8);
  return byte < bits.size() && (static_cast<unsigned char>(bits[byte]) >> (7 - bit % 8) & 1) != 0;
}

// Of another schedule or model, nothing is found, not even in vain.
std::string place(const StoreIdentity& identity, const char* kind, const BlockKey& key) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(identity.weights)));
  hash.update(std::as_bytes(std::span(identity.spec)));
  hash.update(std::as_bytes(std::span(key.digest)));
  return std::string("fathom:") + std::to_string(kStoreFormat) + ":" + kind + ":" +
         to_hex(hash.finish());
}

}  // namespace

struct RedisStates::Parts {
  explicit Parts(const RedisStatesOptions& of)
      : options(of),
        identity(record_identity(of.identity)),
        ttl_ms(std::to_string(std::max<int64_t>(1, of.ttl_us / 1000))),
        reads(of.address, record_bytes(identity.block_bytes) + kSmallAnswers),
        writes(of.address, kSmallAnswers) {}

  struct Find {
    TierTicket ticket = {};
    StateWanted wanted;
    int64_t end_us = 0;
  };

  const RedisStatesOptions options;
  const StoreIdentity identity;
  const std::string ttl_ms;
  RedisLink reads;   // the reading thread's
  RedisLink writes;  // the writing thread's

  mutable std::mutex mutex;  // of all that follows
  std::condition_variable to_reader;
  std::condition_variable to_writer;
  std::condition_variable to_engine;
  std::deque<StateRecord> puts;
  int64_t put_bytes = 0;  // of these, and of the one that is being put
  bool putting = false;
  std::deque<Find> finds;
  std::set<TierTicket> open;  // asked for, not cancelled, result not taken
  std::vector<FoundState> ended;
  uint64_t last_ticket = 0;
  bool stopping = false;
  int64_t stop_us = 0;
  int64_t n_failures = 0;  // in a row
  int64_t paused_until_us = 0;
  std::string failure;
  StateCounters counters;

  std::jthread reading;
  std::jthread writing;

  bool paused() const { return n_failures >= options.failures_max && now_us() < paused_until_us; }
  void succeeded() {
    const std::lock_guard lock(mutex);
    n_failures = 0;
  }
  void failed(const Error& error) {
    const std::lock_guard lock(mutex);
    ++(error.code == ErrorCode::kExhausted ? counters.timeouts
       : error.code == ErrorCode::kIo      ? counters.refusals
                                           : counters.protocol);
    failure = error.message;
    if (++n_failures >= options.failures_max) paused_until_us = now_us() + options.pause_us;
  }

  void read();
  void end_find(const Find& find, FoundState found);
  std::optional<FoundState> look(const Find& find);
  Result<std::vector<StateLabel>> candidates(const Find& find);
  Result<std::optional<FoundState>> fetch(const Find& find, const StateLabel& label);
  Result<std::vector<RedisReply>> ask(const Find& find, std::span<const RedisCommand> commands);

  void write();
  Result<void> send(StateRecord& record, int64_t timeout_us);
};

RedisStates::RedisStates(const RedisStatesOptions& options)
    : parts_(std::make_unique<Parts>(options)) {
  parts_->reading = std::jthread([parts = parts_.get()] { parts->read(); });
  parts_->writing = std::jthread([parts = parts_.get()] { parts->write(); });
}

RedisStates::~RedisStates() {
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->stopping = true;
    parts_->stop_us = now_us() + parts_->options.put_us;
  }
  parts_->to_reader.notify_all();
  parts_->to_writer.notify_all();
  parts_->reading.join();
  parts_->writing.join();
}

bool RedisStates::put(const StateLabel& label, const SessionState& state) {
  Parts& parts = *parts_;
  const int64_t bytes = state.bytes();
  FATHOM_CHECK(bytes <= parts.options.identity.block_bytes);
  {
    const std::lock_guard lock(parts.mutex);
    ++parts.counters.puts;
    const bool is_full = parts.put_bytes + bytes > parts.options.queue_bytes;
    if (parts.paused() || is_full) {
      ++(is_full ? parts.counters.dropped_full : parts.counters.dropped_paused);
      return false;
    }
    parts.put_bytes += bytes;
  }
  StateRecord record = state_record(label, state);
  {
    const std::lock_guard lock(parts.mutex);
    parts.puts.push_back(std::move(record));
  }
  parts.to_writer.notify_one();
  return true;
}

std::optional<TierTicket> RedisStates::find(StateWanted wanted) {
  Parts& parts = *parts_;
  const std::lock_guard lock(parts.mutex);
  ++parts.counters.finds;
  const bool is_full = static_cast<int64_t>(parts.open.size()) >= parts.options.max_finds;
  if (parts.paused() || is_full) {
    ++parts.counters.paused;
    return std::nullopt;
  }
  const auto ticket = static_cast<TierTicket>(++parts.last_ticket);
  parts.open.insert(ticket);
  parts.finds.push_back({ticket, std::move(wanted), now_us() + parts.options.find_us});
  parts.to_reader.notify_one();
  return ticket;
}

void RedisStates::cancel(TierTicket ticket) {
  const std::lock_guard lock(parts_->mutex);
  parts_->open.erase(ticket);
  std::erase_if(parts_->finds, [&](const Parts::Find& find) { return find.ticket == ticket; });
  std::erase_if(parts_->ended, [&](const FoundState& found) { return found.ticket == ticket; });
}

std::vector<FoundState> RedisStates::poll(int64_t timeout_us) {
  Parts& parts = *parts_;
  std::unique_lock lock(parts.mutex);
  parts.to_engine.wait_for(lock, std::chrono::microseconds(timeout_us),
                           [&] { return !parts.ended.empty(); });
  for (const FoundState& found : parts.ended) parts.open.erase(found.ticket);
  return std::exchange(parts.ended, {});
}

StateCounters RedisStates::counters() const {
  const std::lock_guard lock(parts_->mutex);
  StateCounters counters = parts_->counters;
  counters.connects = parts_->reads.n_connects() + parts_->writes.n_connects();
  return counters;
}

std::string RedisStates::failure() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->failure;
}

void RedisStates::flush() {
  std::unique_lock lock(parts_->mutex);
  parts_->to_engine.wait(lock, [&] { return parts_->puts.empty() && !parts_->putting; });
}

std::string RedisStates::state_place(const StoreIdentity& identity, const StateLabel& label) {
  return place(identity, "state", label.name.key);
}

std::string RedisStates::index_place(const StoreIdentity& identity, const BlockKey& parent) {
  return place(identity, "behind", parent);
}

void RedisStates::Parts::read() {
  ignore_broken_pipes();
  std::unique_lock lock(mutex);
  while (true) {
    to_reader.wait(lock, [&] { return stopping || !finds.empty(); });
    if (stopping) return;
    const Find find = std::move(finds.front());
    finds.pop_front();
    lock.unlock();
    std::optional<FoundState> found = look(find);
    end_find(find, found ? std::move(*found) : FoundState{});
    lock.lock();
  }
}

void RedisStates::Parts::end_find(const Find& find, FoundState found) {
  found.ticket = find.ticket;
  {
    const std::lock_guard lock(mutex);
    if (found.state) {
      ++counters.hits;
      counters.hit_bytes += found.state->bytes();
    }
    if (open.count(find.ticket) == 0) return;  // cancelled meanwhile
    ended.push_back(std::move(found));
  }
  to_engine.notify_all();
}

Result<std::vector<RedisReply>> RedisStates::Parts::ask(const Find& find,
                                                        std::span<const RedisCommand> commands) {
  return reads.run(commands, find.end_us - now_us());
}

// Counts what it comes to, hits apart.
std::optional<FoundState> RedisStates::Parts::look(const Find& find) {
  if (now_us() >= find.end_us) {  // others were before it; that is no failure of the server's
    const std::lock_guard lock(mutex);
    ++counters.timeouts;
    ++counters.failed;
    return std::nullopt;
  }
  Result<std::vector<StateLabel>> labels = candidates(find);
  Result<std::optional<FoundState>> found = std::optional<FoundState>();
  if (!labels) {
    found = labels.error();
  } else {
    for (size_t i = 0; i < std::min(labels->size(), kTriesMax) && found && !*found; ++i) {
      found = fetch(find, (*labels)[i]);
    }
  }
  if (!found) {
    failed(found.error());
    const std::lock_guard lock(mutex);
    ++counters.failed;
    return std::nullopt;
  }
  succeeded();
  if (*found) return std::move(*found);
  const std::lock_guard lock(mutex);
  ++counters.missing;
  return std::nullopt;
}

// The states that are there, those behind most tokens first.
Result<std::vector<StateLabel>> RedisStates::Parts::candidates(const Find& find) {
  const StateWanted& wanted = find.wanted;
  std::vector<std::string> places;
  for (const BlockKey& parent : wanted.parents) {
    places.push_back(index_place(identity, parent));
  }
  std::vector<RedisCommand> commands;
  for (const std::string& one : places) commands.push_back({"GET", one});
  FATHOM_ASSIGN_OR_RETURN(const std::vector<RedisReply> bits, ask(find, commands));
  std::vector<StateLabel> labels;
  for (size_t i = bits.size(); i-- > 0;) {
    for (int64_t at = kBlockTokens * kGrades - 1; at >= 0; --at) {
      const auto grade = static_cast<StateGrade>(1 - at % kGrades);  // the exact one first
      const int64_t n_partial = at / kGrades;
      if (!has_bit(bits[i].bytes, bit_of(n_partial, grade))) continue;
      const auto label = label_behind(wanted, i, n_partial, grade);
      if (label && labels.size() < kCandidatesMax) labels.push_back(*label);
    }
  }
  if (labels.size() < 2) return labels;
  places.clear();
  commands.clear();
  for (const StateLabel& label : labels) places.push_back(state_place(identity, label));
  for (const std::string& one : places) commands.push_back({"EXISTS", one});
  FATHOM_ASSIGN_OR_RETURN(const std::vector<RedisReply> there, ask(find, commands));
  std::vector<StateLabel> found;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (there[i].number == 1) found.push_back(labels[i]);
  }
  return found;
}

// Nothing where it is not there or not sound; then it is removed.
Result<std::optional<FoundState>> RedisStates::Parts::fetch(const Find& find,
                                                            const StateLabel& label) {
  const std::string key = state_place(identity, label);
  const std::string index = index_place(identity, label.name.parent);
  const std::vector<RedisCommand> get = {
      {"GET", key}, {"PEXPIRE", key, ttl_ms}, {"PEXPIRE", index, ttl_ms}};
  FATHOM_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, ask(find, get));
  if (replies[0].is_nil) return std::optional<FoundState>();
  Result<SessionState> state =
      open_state(std::as_bytes(std::span(replies[0].bytes)), label, identity);
  if (state) {
    return std::optional(FoundState{.label = label, .state = std::move(*state)});
  }
  {
    const std::lock_guard lock(mutex);
    ++counters.bad;
    failure = options.address.shown() + ": " + state.error().message;
  }
  const std::vector<RedisCommand> remove = {{"DEL", key}};
  FATHOM_RETURN_IF_ERROR(ask(find, remove));
  return std::optional<FoundState>();
}

void RedisStates::Parts::write() {
  ignore_broken_pipes();
  std::unique_lock lock(mutex);
  while (true) {
    to_writer.wait(lock, [&] { return stopping || !puts.empty(); });
    if (puts.empty() || (stopping && now_us() >= stop_us)) return;
    StateRecord record = std::move(puts.front());
    puts.pop_front();
    putting = true;
    const int64_t bytes = record.payload_bytes - kStateHeadBytes;
    const bool tries = !paused();
    const int64_t left_us = stopping ? stop_us - now_us() : options.put_us;
    lock.unlock();
    Result<void> sent;
    if (tries) {
      sent = send(record, left_us);
      if (sent) succeeded();
      if (!sent) failed(sent.error());
    }
    record = {};
    lock.lock();
    putting = false;
    put_bytes -= bytes;
    counters.put_bytes += tries && sent ? bytes : 0;
    ++(!tries ? counters.dropped_paused : sent ? counters.kept : counters.dropped_failed);
    to_engine.notify_all();
  }
}

Result<void> RedisStates::Parts::send(StateRecord& record, int64_t timeout_us) {
  seal_state(record, identity);
  const StateLabel& label = record.label;
  const std::string key = state_place(identity, label);
  const std::string index = index_place(identity, label.name.parent);
  const std::string bit = std::to_string(bit_of(label.n_tokens % kBlockTokens, label.grade));
  const std::string_view bytes(reinterpret_cast<const char*>(record.bytes.data()),
                               record.bytes.size());
  // The state before what points to it.
  const std::vector<RedisCommand> commands = {
      {"SET", key, bytes, "PX", ttl_ms}, {"SETBIT", index, bit, "1"}, {"PEXPIRE", index, ttl_ms}};
  const auto sent = writes.run(commands, timeout_us);
  return sent ? Result<void>() : sent.error();
}

}  // namespace fathom
