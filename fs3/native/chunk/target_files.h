// TargetFiles: the data files of one target directory and its exclusive lock.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fs3/native/chunk/disk.h"

namespace fs3 {

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
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
  // Folders in which files were created since the last call: to be synced so that the names
  // survive power loss.
  std::vector<int> TakeChangedFolders();
  Result<std::vector<Disk::FileInfo>> List() const;

 private:
  TargetFiles(std::string directory, Descriptor lock, std::vector<Descriptor> folders);

  const std::string directory_;
  const Descriptor lock_;
  const std::vector<Descriptor> folders_;  // by FileId::Kind
  std::map<FileId, Descriptor> open_;
  std::set<int> changed_folders_;
};

}  // namespace fs3
