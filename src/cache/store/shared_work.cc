#include "cache/store/shared_work.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/clock.h"

namespace fathom {
namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kHourUs = 3600 * kSecondUs;
// A shard that changed within it before it was looked at may have changed after that without its
// time showing it.
constexpr int64_t kStampUs = 2 * kSecondUs;
constexpr size_t kUsedMax = 1 << 16;
constexpr int64_t kTouchUs = 60 * kSecondUs;  // a use is told to others once in it
constexpr int64_t kSweeps = 8;                // looks for one sweep over all shards
constexpr int64_t kLookShare = 20;

int64_t steady_us() { return static_cast<int64_t>(steady_seconds() * 1e6); }

}  // namespace

int64_t SharedWork::now_us() const {
  return options.unix_us ? options.unix_us() : unix_microseconds();
}

// Reads first: somebody waits for them.
void SharedWork::work() {
  std::unique_lock lock(mutex);
  while (true) {
    to_workers.wait(lock, [&] { return stopping || !gets.empty() || !puts.empty(); });
    if (!gets.empty()) {
      const Get get = gets.front();
      gets.pop_front();
      lock.unlock();
      read(get);
      lock.lock();
    } else if (!puts.empty()) {
      Put put = std::move(puts.front());
      puts.pop_front();
      lock.unlock();
      write(put);
      lock.lock();
      putting.erase(put.block.key);
      put_bytes -= static_cast<int64_t>(put.record.size());
      to_engine.notify_all();
    } else {
      return;
    }
  }
}

void SharedWork::read(const Get& get) {
  const TierStatus status = read_into(get);
  const std::lock_guard lock(mutex);
  counters.hits += status == TierStatus::kOk ? 1 : 0;
  counters.misses += status == TierStatus::kMissing ? 1 : 0;
  counters.bad += status == TierStatus::kBad ? 1 : 0;
  --n_gets;
  ended.push_back({get.ticket, status});
  if (status == TierStatus::kOk) {
    note_use(get.key);
  } else {
    catalog.remove(get.key);
  }
  to_engine.notify_all();
}

void SharedWork::note_use(const BlockKey& key) {
  const SharedCatalog::Entry* entry = catalog.find(key);
  const int64_t now = now_us();
  if (entry == nullptr || entry->used_us + kTouchUs > now) return;
  catalog.use(key, now);
  if (used.size() < kUsedMax) used.push_back(key);
}

TierStatus SharedWork::read_into(const Get& get) {
  const auto bytes = folder.read(get.key, record_bytes(options.identity.block_bytes));
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) return TierStatus::kMissing;
  if (!bytes && bytes.error().code == ErrorCode::kIo) {
    const std::lock_guard lock(mutex);
    failure = bytes.error().message;
    return TierStatus::kMissing;
  }
  const Result<RecordHead> head =
      bytes ? open_record(*bytes, options.identity) : Result<RecordHead>(bytes.error());
  const bool sound = head && head->block.key == get.key &&
                     head->place == SharedFolder::place_of(get.key) &&
                     head->payload_bytes == static_cast<int64_t>(get.into.size());
  if (!sound) {
    folder.remove(get.key);  // whoever has computed it may put it again
    const std::lock_guard lock(mutex);
    failure = head ? "record: of another block" : head.error().message;
    return TierStatus::kBad;
  }
  if (head->created_us < oldest_us()) {
    folder.remove(get.key);
    const std::lock_guard lock(mutex);
    ++counters.evicted_age;
    return TierStatus::kMissing;
  }
  std::ranges::copy(payload_of(*head, *bytes), get.into.begin());
  return TierStatus::kOk;
}

// Whether the record may be written; false: looking at the folder again comes first.
bool SharedWork::has_room(int64_t bytes) {
  return written_bytes + bytes <= std::max(options.max_bytes / 64, bytes);
}

void SharedWork::write(Put& put) {
  const auto bytes = static_cast<int64_t>(put.record.size());
  const int64_t created_us = now_us();
  {
    std::unique_lock lock(mutex);
    if (catalog.find(put.block.key) != nullptr) {
      ++counters.found_again;
      return;
    }
    if (created_us < paused_until_us || bytes > room_bytes()) {
      ++counters.dropped_failed;
      return;
    }
    asks_look = asks_look || !has_room(bytes);
    if (asks_look) to_keeper.notify_one();
    to_engine.wait(lock, [&] { return has_room(bytes); });
    written_bytes += bytes;
  }
  make_room(bytes);
  seal_record({.block = put.block,
               .payload_bytes = put.payload_bytes,
               .created_us = created_us,
               .place = SharedFolder::place_of(put.block.key)},
              options.identity, put.record);
  const Result<bool> published = folder.publish(put.block.key, put.record, created_us);
  const auto there = published ? folder.look(put.block.key) : published.error();
  const std::lock_guard lock(mutex);
  if (!published) {
    ++counters.dropped_failed;
    failure = published.error().message;
    paused_until_us = now_us() + options.pause_us;
    return;
  }
  ++(*published ? counters.kept : counters.found_again);
  counters.put_payload_bytes += *published ? put.payload_bytes : 0;
  counters.written_bytes += bytes;
  if (there && forgotten.count(put.block.key) == 0) catalog.add(*there, n_looks);
}

// What was used least lately goes, by what is known of all processes' uses.
void SharedWork::make_room(int64_t bytes) {
  std::unique_lock lock(mutex);
  while (catalog.n_blocks() > 0 && catalog.bytes() + bytes > room_bytes()) {
    const SharedFile first = catalog.first_to_go();
    catalog.remove(first.key);
    lock.unlock();
    const auto now = folder.look(first.key);
    const bool was_used = now && now->used_us > first.used_us;
    if (now && !was_used) folder.remove(first.key);
    lock.lock();
    if (was_used) catalog.add(*now, n_looks);
    counters.evicted_size += now && !was_used ? 1 : 0;
  }
}

void SharedWork::keep() {
  int64_t wait_us = options.look_us;
  std::unique_lock lock(mutex);
  while (!stopping || !puts.empty() || !putting.empty()) {
    to_keeper.wait_for(lock, std::chrono::microseconds(wait_us),
                       [&] { return stopping || asks_look; });
    if (stopping && puts.empty() && putting.empty()) break;
    asks_look = false;
    lock.unlock();
    const int64_t begin_us = steady_us();
    tell_others();
    look();
    sweep();
    make_room(0);
    // Looking takes a twentieth of a core at most, however much is there.
    wait_us = std::max(options.look_us, kLookShare * (steady_us() - begin_us));
    lock.lock();
    ++n_looked;
    to_engine.notify_all();
    // Those that wait to put ask for the next look themselves.
    if (stopping) to_keeper.wait_for(lock, std::chrono::microseconds(1000));
  }
  lock.unlock();
  tell_others();
}

void SharedWork::look() {
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex);
    number = ++n_looks;
    written_bytes = 0;
  }
  for (int64_t shard = 0; shard < kShards; ++shard) {
    const auto at = static_cast<size_t>(shard);
    const int64_t change_us = folder.shard_change_us(shard);
    const int64_t begin_us = unix_microseconds();
    const bool is_same = change_us == changed_us_[at] && change_us + kStampUs < looked_us_[at];
    if (is_same || (change_us < 0 && changed_us_[at] <= 0)) continue;
    SharedFolder::Keys known;
    {
      const std::lock_guard lock(mutex);
      for (const auto& [key, entry] : catalog.shard(shard)) known.insert(key);
    }
    const auto listing = folder.list(shard, known, now_us());
    const std::lock_guard lock(mutex);
    if (!listing) {
      failure = listing.error().message;
      continue;
    }
    changed_us_[at] = change_us;
    looked_us_[at] = begin_us;
    catalog.merge(shard, *listing, number);
    for (const BlockKey& key : forgotten) catalog.remove(key);
  }
}

// Of uses and of what is forgotten.
void SharedWork::tell_others() {
  std::deque<BlockKey> touched;
  std::deque<BlockKey> removed;
  {
    const std::lock_guard lock(mutex);
    touched.swap(used);
    removed.swap(dead);
  }
  const int64_t now = now_us();
  for (const BlockKey& key : touched) folder.touch(key, now);
  for (const BlockKey& key : removed) folder.remove(key);
  const std::lock_guard lock(mutex);
  for (const BlockKey& key : removed) {
    if (putting.count(key) != 0) {
      dead.push_back(key);
    } else {
      forgotten.erase(key);
    }
  }
}

// Old blocks go, the others' ages are counted. A part of the shards each time: one after another,
// so that the engine's thread waits for none of this.
void SharedWork::sweep() {
  constexpr std::array<int64_t, 4> kAges = {kHourUs, 6 * kHourUs, 24 * kHourUs, 72 * kHourUs};
  const int64_t now = now_us();
  for (int64_t shard = n_looks % kSweeps; shard < kShards; shard += kSweeps) {
    std::vector<BlockKey> old;
    std::array<int64_t, 5> bytes = {};
    {
      const std::lock_guard lock(mutex);
      for (const auto& [key, entry] : catalog.shard(shard)) {
        if (entry.created_us < now - options.max_age_us) {
          old.push_back(key);
          continue;
        }
        const auto age = std::ranges::upper_bound(kAges, now - entry.created_us) - kAges.begin();
        bytes.at(static_cast<size_t>(age)) +=
            std::min(entry.bytes - kRecordHeadBytes, options.identity.block_bytes);
      }
      for (const BlockKey& key : old) catalog.remove(key);
      counters.evicted_age += static_cast<int64_t>(old.size());
      auto& before = bytes_by_age_.at(static_cast<size_t>(shard));
      for (size_t i = 0; i < bytes.size(); ++i) {
        counters.bytes_by_age.at(i) += bytes.at(i) - before.at(i);
      }
      before = bytes;
    }
    for (const BlockKey& key : old) folder.remove(key);
  }
}

}  // namespace fathom
