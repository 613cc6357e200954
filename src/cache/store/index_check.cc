// The layout is LMDB's data format 1 (mdb.c of the 0.9 series: MDB_page, MDB_node, MDB_meta), which
// that series keeps on disk.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "cache/store/index.h"

namespace fathom {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kVersion = 1;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint16_t kBranch = 1;
constexpr uint16_t kLeaf = 2;
constexpr uint16_t kOverflow = 4;
constexpr uint16_t kMetaPage = 8;
constexpr uint16_t kIntegerKeys = 8;
// The tree of free pages carries flags of the environment: MDB_NOSUBDIR.
constexpr uint16_t kFreeFlags = kIntegerKeys | 0x4000;
constexpr uint16_t kBigData = 1;
constexpr size_t kPageHead = 16;
constexpr size_t kNodeHead = 8;
constexpr uint16_t kMaxDepth = 32;
// Pages that a transaction took and gave back may lie behind the end of the file, free.
constexpr uint64_t kPagesBehind = 65536;

struct Tree {
  uint32_t pad = 0;  // of the tree of free pages: bytes of a page
  uint16_t flags = 0;
  uint16_t depth = 0;
  uint64_t branch_pages = 0;
  uint64_t leaf_pages = 0;
  uint64_t overflow_pages = 0;
  uint64_t entries = 0;
  uint64_t root = kNoPage;
};
static_assert(sizeof(Tree) == 48);

struct Meta {
  uint32_t magic = 0;
  uint32_t version = 0;
  uint64_t address = 0;
  uint64_t map_bytes = 0;
  Tree free;
  Tree main;
  uint64_t last_page = 0;
  uint64_t transaction = 0;
};
static_assert(sizeof(Meta) == 136);

struct PageHead {
  uint64_t number = 0;
  uint16_t pad = 0;
  uint16_t flags = 0;
  uint16_t lower = 0;  // overflow pages: both halves of their number of pages
  uint16_t upper = 0;
};
static_assert(sizeof(PageHead) == kPageHead);

struct Node {
  uint64_t low = 0;  // of the size of the value, or of the number of the page below
  uint16_t flags = 0;
  uint16_t key_bytes = 0;
  size_t begin = 0;  // of the key, in the file
};

class IndexWalk {
 public:
  IndexWalk(std::span<const std::byte> file, std::vector<std::span<const std::byte>>* rows)
      : file_(file), rows_(rows) {}

  Result<void> run();

 private:
  template <typename T>
  T read(size_t at) const {
    T value;
    std::memcpy(&value, file_.data() + at, sizeof(T));
    return value;
  }
  size_t offset(uint64_t page) const { return static_cast<size_t>(page) * page_bytes_; }
  static Error unsound(uint64_t page, const std::string& what) {
    return invalid("page " + std::to_string(page) + ": " + what);
  }

  Result<Meta> choose_meta();
  Result<PageHead> enter(uint64_t page);
  Result<void> tree(const Tree& tree, bool is_free);
  Result<void> branch(uint64_t page, const PageHead& head, int height, bool is_free);
  Result<void> leaf(uint64_t page, const PageHead& head, bool is_free);
  Result<void> descend(uint64_t page, int height, bool is_free);
  Result<std::vector<Node>> nodes(uint64_t page, const PageHead& head, bool with_values);
  Result<void> free_pages(uint64_t page, const Node& node);
  Result<size_t> big_value(uint64_t page, uint64_t first, uint64_t bytes);
  Result<void> reach(uint64_t page);

  std::span<const std::byte> file_;
  std::vector<std::span<const std::byte>>* rows_;
  size_t page_bytes_ = 0;
  uint64_t n_file_pages_ = 0;
  uint64_t n_pages_ = 0;
  std::vector<bool> reached_;
  std::vector<uint64_t> free_;
  uint64_t n_entries_ = 0;
  uint64_t last_key_ = 0;
};

Result<Meta> IndexWalk::choose_meta() {
  if (file_.size() < kPageHead + sizeof(Meta)) return invalid("ends inside its first page");
  page_bytes_ = read<Meta>(kPageHead).free.pad;
  const bool power =
      page_bytes_ >= 4096 && page_bytes_ <= 65536 && (page_bytes_ & (page_bytes_ - 1)) == 0;
  if (!power) return unsound(0, "no size of a page");
  if (file_.size() < 2 * page_bytes_) return invalid("ends inside its second page");
  std::array<Meta, 2> metas;
  for (uint64_t page = 0; page < 2; ++page) {
    const auto head = read<PageHead>(offset(page));
    const auto meta = read<Meta>(offset(page) + kPageHead);
    const bool ours = head.number == page && head.flags == kMetaPage && meta.magic == kMagic &&
                      meta.version == kVersion && meta.free.pad == page_bytes_;
    if (!ours) return unsound(page, "no page of LMDB's format 1");
    if (meta.transaction != 0 && meta.transaction % 2 != page) {
      return unsound(page, "another page's transaction");
    }
    metas.at(page) = meta;
  }
  return metas.at(metas[0].transaction < metas[1].transaction ? 1 : 0);
}

Result<void> IndexWalk::run() {
  FATHOM_ASSIGN_OR_RETURN(const Meta meta, choose_meta());
  n_file_pages_ = file_.size() / page_bytes_;
  if (meta.last_page >= n_file_pages_ + kPagesBehind) return unsound(0, "more pages than the file");
  n_pages_ = meta.last_page + 1;
  reached_.assign(n_pages_, false);
  if (meta.free.flags != kFreeFlags || meta.main.flags != kIntegerKeys) {
    return unsound(0, "trees of another kind");
  }
  FATHOM_RETURN_IF_ERROR(tree(meta.main, false));
  FATHOM_RETURN_IF_ERROR(tree(meta.free, true));
  for (const uint64_t page : free_) FATHOM_RETURN_IF_ERROR(reach(page));
  return {};
}

Result<void> IndexWalk::reach(uint64_t page) {
  if (page < 2 || page >= n_pages_) return unsound(page, "out of range");
  if (reached_[page]) return unsound(page, "reached twice");
  reached_[page] = true;
  return {};
}

Result<PageHead> IndexWalk::enter(uint64_t page) {
  FATHOM_RETURN_IF_ERROR(reach(page));
  if (page >= n_file_pages_) return unsound(page, "behind the end of the file");
  const auto head = read<PageHead>(offset(page));
  if (head.number != page) return unsound(page, "has another number");
  return head;
}

Result<void> IndexWalk::tree(const Tree& tree, bool is_free) {
  n_entries_ = 0;
  last_key_ = 0;
  if (tree.root == kNoPage) {
    return tree.entries == 0 && tree.depth == 0 ? Result<void>() : unsound(0, "entries, no root");
  }
  if (tree.depth < 1 || tree.depth > kMaxDepth) return unsound(0, "no depth of a tree");
  FATHOM_RETURN_IF_ERROR(descend(tree.root, tree.depth, is_free));
  if (n_entries_ != tree.entries) return unsound(0, "another number of entries");
  return {};
}

Result<void> IndexWalk::descend(uint64_t page, int height, bool is_free) {
  FATHOM_ASSIGN_OR_RETURN(const PageHead head, enter(page));
  if (head.flags != (height > 1 ? kBranch : kLeaf)) return unsound(page, "of another kind");
  return height > 1 ? branch(page, head, height, is_free) : leaf(page, head, is_free);
}

Result<std::vector<Node>> IndexWalk::nodes(uint64_t page, const PageHead& head, bool with_values) {
  const size_t begin = offset(page);
  const bool bounded = kPageHead < head.lower && head.lower <= head.upper &&
                       head.upper <= page_bytes_ && head.lower % 2 == 0;
  if (!bounded) return unsound(page, "bounds of its nodes");
  std::vector<Node> result;
  size_t used = 0;
  for (size_t at = kPageHead; at < head.lower; at += 2) {
    const size_t place = read<uint16_t>(begin + at);
    if (place < head.upper || place + kNodeHead > page_bytes_)
      return unsound(page, "place of a node");
    Node node;
    node.low = read<uint16_t>(begin + place) | uint64_t{read<uint16_t>(begin + place + 2)} << 16;
    node.flags = read<uint16_t>(begin + place + 4);
    node.key_bytes = read<uint16_t>(begin + place + 6);
    node.begin = begin + place + kNodeHead;
    const bool big = with_values && node.flags == kBigData;
    const size_t value = !with_values ? 0 : big ? sizeof(uint64_t) : node.low;
    const size_t bytes = kNodeHead + node.key_bytes + value;
    if (place + bytes > page_bytes_) return unsound(page, "end of a node");
    used += bytes + bytes % 2;
    result.push_back(node);
  }
  if (used > page_bytes_ - head.upper) return unsound(page, "nodes that overlap");
  return result;
}

Result<void> IndexWalk::branch(uint64_t page, const PageHead& head, int height, bool is_free) {
  FATHOM_ASSIGN_OR_RETURN(const std::vector<Node> below, nodes(page, head, false));
  for (size_t i = 0; i < below.size(); ++i) {
    const bool first = i == 0 && below[i].key_bytes == 0;
    if (!first && below[i].key_bytes != kIndexKeyBytes) return unsound(page, "size of a key");
    const uint64_t next = below[i].low | uint64_t{below[i].flags} << 32;
    FATHOM_RETURN_IF_ERROR(descend(next, height - 1, is_free));
    if (i + 1 < below.size() && below[i + 1].key_bytes == kIndexKeyBytes &&
        read<uint64_t>(below[i + 1].begin) <= last_key_) {
      return unsound(page, "order of its keys");
    }
  }
  return {};
}

Result<void> IndexWalk::leaf(uint64_t page, const PageHead& head, bool is_free) {
  FATHOM_ASSIGN_OR_RETURN(const std::vector<Node> rows, nodes(page, head, true));
  for (const Node& row : rows) {
    if (row.key_bytes != kIndexKeyBytes) return unsound(page, "size of a key");
    const auto key = read<uint64_t>(row.begin);
    if (n_entries_ > 0 && key <= last_key_) return unsound(page, "order of its keys");
    last_key_ = key;
    ++n_entries_;
    if (!is_free && (row.flags != 0 || row.low != kIndexRowBytes)) {
      return unsound(page, "size of a row");
    }
    if (is_free) FATHOM_RETURN_IF_ERROR(free_pages(page, row));
    if (!is_free && rows_ != nullptr) {
      rows_->push_back(file_.subspan(row.begin, kIndexKeyBytes + kIndexRowBytes));
    }
  }
  return {};
}

// A number of pages, then as many pages, the greatest first.
Result<void> IndexWalk::free_pages(uint64_t page, const Node& node) {
  if (node.flags != 0 && node.flags != kBigData) return unsound(page, "kind of a node");
  size_t at = node.begin + node.key_bytes;
  if (node.flags == kBigData) {
    FATHOM_ASSIGN_OR_RETURN(at, big_value(page, read<uint64_t>(at), node.low));
  }
  if (node.low < sizeof(uint64_t)) return unsound(page, "list of free pages");
  const auto n = read<uint64_t>(at);
  if (n > node.low / sizeof(uint64_t) - 1) return unsound(page, "list of free pages");
  for (uint64_t i = 0; i < n; ++i) {
    const auto freed = read<uint64_t>(at + (i + 1) * sizeof(uint64_t));
    if (i > 0 && freed >= free_.back()) return unsound(page, "order of free pages");
    free_.push_back(freed);
  }
  return {};
}

Result<size_t> IndexWalk::big_value(uint64_t page, uint64_t first, uint64_t bytes) {
  FATHOM_ASSIGN_OR_RETURN(const PageHead head, enter(first));
  const uint64_t n = head.lower | uint64_t{head.upper} << 16;
  const bool fits = head.flags == kOverflow && n >= 1 && n <= n_file_pages_ - first &&
                    kPageHead + bytes <= n * page_bytes_;
  if (!fits) return unsound(page, "value on pages of its own");
  for (uint64_t i = 1; i < n; ++i) FATHOM_RETURN_IF_ERROR(reach(first + i));
  return offset(first) + kPageHead;
}

}  // namespace

Result<void> check_index_file(std::span<const std::byte> file,
                              std::vector<std::span<const std::byte>>* rows) {
  return IndexWalk(file, rows).run();
}

}  // namespace fathom
