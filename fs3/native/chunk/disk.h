// Disk: numbered files of one target, with completion callbacks.
//
// Contract: every callback runs exactly once, on the thread that uses the store, possibly before
// the call returns. What a completed Write wrote is seen by every later Read; it survives power
// loss only once a Sync of that file, begun after it completed, has completed.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fs3/native/base/status.h"
#include "fs3/native/loop/function.h"

namespace fs3 {

struct FileId {
  enum class Kind : uint8_t { kBlock = 0, kLog = 1 };
  Kind kind = Kind::kBlock;
  uint8_t class_log2 = 0;  // of kBlock: size of its blocks
  uint32_t number = 0;
  auto operator<=>(const FileId&) const = default;
};

// Path below the target directory: "blocks/<block size>-<n>" or "log/<n>".
std::string FileName(const FileId& file);

class Disk {
 public:
  using Done = Function<void(Status)>;
  virtual ~Disk() = default;

  // Exactly data.size() bytes, or an error (kCorrupt past the end of the file).
  virtual void Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) = 0;
  // Creates the file. `data` must stay valid until done.
  virtual void Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) = 0;
  virtual void Sync(FileId file, Done done) = 0;
  // Backs a range with space and extends the file to hold it; kNoSpace.
  virtual void Allocate(FileId file, uint64_t offset, uint64_t length, Done done) = 0;
  // Gives the space of a range back; it reads as zeros.
  virtual void Punch(FileId file, uint64_t offset, uint64_t length, Done done) = 0;
  virtual void Remove(FileId file, Done done) = 0;

  struct FileInfo {
    FileId file;
    uint64_t size = 0;
  };
  // Existing files in order. Blocks; called only while opening.
  virtual Result<std::vector<FileInfo>> List() = 0;
};

}  // namespace fs3
