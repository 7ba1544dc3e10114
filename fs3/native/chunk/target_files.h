// TargetFiles: the data files of one target directory and its exclusive lock.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fs3/native/chunk/disk.h"

namespace fs3 {

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// errno as a Status that names what was tried.
Status ErrnoStatus(int error, const std::string& what);

class TargetFiles {
 public:
  // Makes the directory's folders and locks it. kBusy: another process serves this target.
  static Result<std::unique_ptr<TargetFiles>> Open(const std::string& directory);

  // Descriptor of a file that exists (kNotFound) or, with create, of a new one. Kept open.
  Result<int> Get(FileId file, bool create);
  Status Remove(FileId file);
  // Makes the names of files created since the last call survive power loss.
  Status SyncNames();
  bool has_new_names() const { return has_new_names_; }
  Result<std::vector<Disk::FileInfo>> List() const;

 private:
  TargetFiles(std::string directory, Descriptor lock)
      : directory_(std::move(directory)), lock_(std::move(lock)) {}

  const std::string directory_;
  Descriptor lock_;
  std::map<FileId, Descriptor> open_;
  bool has_new_names_ = false;
};

}  // namespace fs3
