// SyncDisk: a target directory through plain system calls; callbacks run before a call returns.
#pragma once

#include "fs3/native/chunk/target_files.h"

namespace fs3 {

class SyncDisk final : public Disk {
 public:
  explicit SyncDisk(std::unique_ptr<TargetFiles> files) : files_(std::move(files)) {}

  void Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) override;
  void Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) override;
  void Sync(FileId file, Done done) override;
  void Allocate(FileId file, uint64_t offset, uint64_t length, Done done) override;
  void Punch(FileId file, uint64_t offset, uint64_t length, Done done) override;
  void Remove(FileId file, Done done) override;
  Result<std::vector<FileInfo>> List() override { return files_->List(); }

 private:
  std::unique_ptr<TargetFiles> files_;
};

}  // namespace fs3
