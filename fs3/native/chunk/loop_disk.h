// LoopDisk: a target directory through an event loop's io_uring, so that the loop's thread never
// waits for the device.
#pragma once

#include "fs3/native/chunk/target_files.h"
#include "fs3/native/loop/loop.h"

namespace fs3 {

class LoopDisk final : public Disk {
 public:
  LoopDisk(Loop& loop, std::unique_ptr<TargetFiles> files)
      : loop_(loop), files_(std::move(files)) {}

  void Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) override;
  void Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) override;
  void Sync(FileId file, Done done) override;
  void Allocate(FileId file, uint64_t offset, uint64_t length, Done done) override;
  void Punch(FileId file, uint64_t offset, uint64_t length, Done done) override;
  void Remove(FileId file, Done done) override;
  Result<std::vector<FileInfo>> List() override { return files_->List(); }

 private:
  Loop& loop_;
  std::unique_ptr<TargetFiles> files_;
};

}  // namespace fs3
