#include "fs3/native/chunk/loop_disk.h"

#include <linux/falloc.h>
#include <sys/stat.h>

#include "fs3/native/chunk/async.h"

namespace fs3 {
namespace {

constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

// Waits for one operation of the loop; its result is that of the system call.
class Completed {
 public:
  Completed() = default;
  Completed(const Completed&) = delete;
  Completed& operator=(const Completed&) = delete;
  Completion Expect() {
    return [this](int32_t result) {
      result_ = result;
      waiter_.resume();
    };
  }
  bool await_ready() const { return false; }  // never before the starting call has returned
  void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
  int32_t await_resume() const { return result_; }

 private:
  int32_t result_ = 0;
  std::coroutine_handle<> waiter_;
};

Status Outcome(int32_t result, const char* what) {
  return result >= 0 ? Status::Ok() : ErrnoStatus(-result, what);
}

Detached ReadAll(Loop& loop, int fd, uint64_t offset, std::span<uint8_t> data, Disk::Done done) {
  while (!data.empty()) {
    Completed completed;
    loop.Read(fd, data.data(), data.size(), offset, completed.Expect());
    const int32_t n = co_await completed;
    if (n == 0) {
      done(Status(Code::kCorrupt, "read past the end of the file"));
      co_return;
    }
    if (n < 0 && n != -EINTR && n != -EAGAIN) {
      done(ErrnoStatus(-n, "read"));
      co_return;
    }
    if (n < 0) continue;
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  done(Status::Ok());
}

Detached WriteAll(Loop& loop, int fd, uint64_t offset, std::span<const uint8_t> data,
                  Disk::Done done) {
  while (!data.empty()) {
    Completed completed;
    loop.Write(fd, data.data(), data.size(), offset, completed.Expect());
    const int32_t n = co_await completed;
    if (n < 0 && n != -EINTR && n != -EAGAIN) {
      done(ErrnoStatus(-n, "write"));
      co_return;
    }
    if (n < 0) continue;
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  done(Status::Ok());
}

Detached SyncAll(Loop& loop, int fd, std::vector<int> folders, Disk::Done done) {
  Gather syncs;
  const auto then = [](Function<void(Status)> part) {
    return [part = std::move(part)](int32_t result) mutable { part(Outcome(result, "sync")); };
  };
  loop.Sync(fd, /*data_only=*/true, then(syncs.Add()));
  for (const int folder : folders) loop.Sync(folder, /*data_only=*/false, then(syncs.Add()));
  Status status = co_await syncs;
  done(std::move(status));
}

}  // namespace

void LoopDisk::Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) {
  const Result<int> fd = files_->Get(file, false);
  if (!fd.ok()) return done(fd.status());
  ReadAll(loop_, fd.value(), offset, data, std::move(done));
}

void LoopDisk::Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) {
  const Result<int> fd = files_->Get(file, true);
  if (!fd.ok()) return done(fd.status());
  WriteAll(loop_, fd.value(), offset, data, std::move(done));
}

void LoopDisk::Sync(FileId file, Done done) {
  const Result<int> fd = files_->Get(file, false);
  if (!fd.ok()) return done(fd.status());
  SyncAll(loop_, fd.value(), files_->TakeChangedFolders(), std::move(done));
}

void LoopDisk::Allocate(FileId file, uint64_t offset, uint64_t length, Done done) {
  const Result<int> fd = files_->Get(file, true);
  if (!fd.ok()) return done(fd.status());
  loop_.Allocate(fd.value(), 0, offset, length,
                 [done = std::move(done)](int32_t n) mutable { done(Outcome(n, "allocate")); });
}

void LoopDisk::Punch(FileId file, uint64_t offset, uint64_t length, Done done) {
  const Result<int> fd = files_->Get(file, false);
  if (!fd.ok()) return done(fd.status());
  loop_.Allocate(fd.value(), kPunch, offset, length,
                 [done = std::move(done)](int32_t n) mutable { done(Outcome(n, "punch")); });
}

// Emptied on the ring first: what is left for unlink, which would wait, is only the name.
void LoopDisk::Remove(FileId file, Done done) {
  const Result<int> fd = files_->Get(file, false);
  struct stat found {};
  if (!fd.ok() || ::fstat(fd.value(), &found) != 0 || found.st_size == 0) {
    return done(files_->Remove(file));
  }
  loop_.Allocate(
      fd.value(), kPunch, 0, static_cast<uint64_t>(found.st_size),
      [this, file, done = std::move(done)](int32_t) mutable { done(files_->Remove(file)); });
}

}  // namespace fs3
