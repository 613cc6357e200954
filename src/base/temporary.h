#pragma once

// Files that are being written. Each has a name of its own until it is complete, so that two
// writers never share bytes; the locks on it and on its folder end with the process, however that
// ends, so that what a dead writer left is known as such.

#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"

namespace fathom {

// PATH.<process>-<number>.tmp, which becomes PATH, or what PATH links to. One that is dropped
// before is removed. A PATH that is no regular file is refused. Movable.
class TemporaryFile {
 public:
  static Result<TemporaryFile> create(const std::string& path);

  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&& other) noexcept;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  int fd() const { return file_.get(); }
  const std::string& name() const { return name_; }  // where it is
  Result<void> sync() const;
  // Takes the place of PATH and is closed.
  Result<void> publish();

 private:
  TemporaryFile(FileDescriptor file, std::string path, std::string name);

  FileDescriptor file_;
  std::string path_;
  std::string name_;  // empty: published, or moved from
};

// The folders on the way to a path that were not there before. Those that are still empty are taken
// away again when it is dropped, the innermost first, unless keep() was called. Movable.
class NewFolders {
 public:
  // Makes the folder and its parents; of those it made it leaves none where it fails.
  static Result<NewFolders> make(const std::string& path);

  NewFolders(NewFolders&& other) noexcept = default;
  NewFolders& operator=(NewFolders&& other) noexcept;
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders();

  void keep() { made_.clear(); }

 private:
  NewFolders() = default;

  std::vector<std::string> made_;  // the outermost first
};

// Removes temporary files whose name begins with `prefix` and whose writers are gone. What cannot
// be removed stays.
void remove_abandoned(const std::string& folder, const std::string& prefix = "");

// The right to write into a folder, held by one process at a time. Movable. While it is held the
// folder has a file .fathom-writer, which also tells what a holder that died had announced.
class FolderLock {
 public:
  // kExhausted where another process has it.
  static Result<FolderLock> take(const std::string& folder);

  struct Announced {
    const TemporaryFile* file = nullptr;
    std::string name;  // in the folder
  };
  // Notes on the disk that these files are about to be published, in this order. Where this process
  // dies before the last one is, the next take() removes those that were.
  Result<void> announce(const std::vector<Announced>& files) const;

  FolderLock(FolderLock&& other) noexcept = default;
  FolderLock& operator=(FolderLock&& other) noexcept;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  FolderLock(FileDescriptor file, std::string path);

  FileDescriptor file_;
  std::string path_;
};

}  // namespace fathom
