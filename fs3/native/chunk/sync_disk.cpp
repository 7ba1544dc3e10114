#include "fs3/native/chunk/sync_disk.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

namespace fs3 {
namespace {

Status ReadAll(int fd, uint64_t offset, std::span<uint8_t> data) {
  while (!data.empty()) {
    const ssize_t n = ::pread(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n == 0) return {Code::kCorrupt, "read past the end of the file"};
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read");
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

Status WriteAll(int fd, uint64_t offset, std::span<const uint8_t> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write");
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length, const char* what) {
  const auto at = static_cast<off_t>(offset);
  if (::fallocate(fd, mode, at, static_cast<off_t>(length)) == 0) return Status::Ok();
  return ErrnoStatus(errno, what);
}

}  // namespace

void SyncDisk::Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) {
  const Result<int> fd = files_->Get(file, false);
  done(fd.ok() ? ReadAll(fd.value(), offset, data) : fd.status());
}

void SyncDisk::Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) {
  const Result<int> fd = files_->Get(file, true);
  done(fd.ok() ? WriteAll(fd.value(), offset, data) : fd.status());
}

void SyncDisk::Sync(FileId file, Done done) {
  const Result<int> fd = files_->Get(file, false);
  if (!fd.ok()) return done(fd.status());
  if (::fdatasync(fd.value()) != 0) return done(ErrnoStatus(errno, "sync"));
  for (const int folder : files_->TakeChangedFolders()) {
    if (::fsync(folder) != 0) return done(ErrnoStatus(errno, "sync a folder"));
  }
  done(Status::Ok());
}

void SyncDisk::Allocate(FileId file, uint64_t offset, uint64_t length, Done done) {
  const Result<int> fd = files_->Get(file, true);
  done(fd.ok() ? Fallocate(fd.value(), 0, offset, length, "allocate") : fd.status());
}

void SyncDisk::Punch(FileId file, uint64_t offset, uint64_t length, Done done) {
  const Result<int> fd = files_->Get(file, false);
  done(fd.ok() ? Fallocate(fd.value(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length,
                           "punch")
               : fd.status());
}

void SyncDisk::Remove(FileId file, Done done) { done(files_->Remove(file)); }

}  // namespace fs3
