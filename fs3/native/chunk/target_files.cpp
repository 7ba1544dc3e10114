#include "fs3/native/chunk/target_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

namespace fs3 {
namespace {

constexpr const char* kFolders[] = {"blocks", "log"};  // by FileId::Kind

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The inverse of FileName; nothing for names that are not ours.
std::optional<FileId> ParseName(const std::string& folder, const std::string& name) {
  if (folder == "log") {
    const auto number = ParseNumber(name);
    if (!number) return std::nullopt;
    return FileId{FileId::Kind::kLog, 0, static_cast<uint32_t>(*number)};
  }
  const size_t dash = name.find('-');
  if (dash == std::string::npos) return std::nullopt;
  const auto size = ParseNumber(std::string_view(name).substr(0, dash));
  const auto number = ParseNumber(std::string_view(name).substr(dash + 1));
  if (!size || !number || !std::has_single_bit(*size)) return std::nullopt;
  return FileId{FileId::Kind::kBlock, static_cast<uint8_t>(std::countr_zero(*size)),
                static_cast<uint32_t>(*number)};
}

}  // namespace

Status ErrnoStatus(int error, const std::string& what) {
  Code code = Code::kInternal;
  if (error == ENOSPC || error == EDQUOT) code = Code::kNoSpace;
  if (error == ENOENT) code = Code::kNotFound;
  if (error == EACCES || error == EPERM) code = Code::kPermissionDenied;
  return {code, "cannot " + what + ": " + std::strerror(error)};
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

TargetFiles::TargetFiles(std::string directory, Descriptor lock, std::vector<Descriptor> folders)
    : directory_(std::move(directory)), lock_(std::move(lock)), folders_(std::move(folders)) {}

Result<std::unique_ptr<TargetFiles>> TargetFiles::Open(const std::string& directory) {
  std::vector<Descriptor> folders;
  for (const char* folder : kFolders) {
    const std::string path = directory + "/" + folder;
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return ErrnoStatus(error.value(), "create " + path);
    folders.emplace_back(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folders.back().get() < 0) return ErrnoStatus(errno, "open " + path);
  }
  Descriptor lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0) return ErrnoStatus(errno, "open " + directory);
  // The folders themselves were perhaps just made.
  if (::fsync(lock.get()) != 0) return ErrnoStatus(errno, "sync " + directory);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + directory);
    return Status(Code::kBusy,
                  directory + " is served by another process; stop it before serving it here");
  }
  return std::unique_ptr<TargetFiles>(
      new TargetFiles(directory, std::move(lock), std::move(folders)));
}

Result<int> TargetFiles::Get(FileId file, bool create) {
  if (const auto at = open_.find(file); at != open_.end()) return at->second.get();
  const std::string path = directory_ + "/" + FileName(file);
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && create) {
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    changed_folders_.insert(folders_[static_cast<size_t>(file.kind)].get());
  }
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  open_.emplace(file, fd);
  return fd;
}

Status TargetFiles::Remove(FileId file) {
  open_.erase(file);
  const std::string path = directory_ + "/" + FileName(file);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
  return Status::Ok();
}

std::vector<int> TargetFiles::TakeChangedFolders() {
  const auto taken = std::exchange(changed_folders_, {});
  return {taken.begin(), taken.end()};
}

Result<std::vector<Disk::FileInfo>> TargetFiles::List() const {
  std::vector<Disk::FileInfo> out;
  for (const char* folder : kFolders) {
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(directory_ + "/" + folder, error)) {
      const auto file = ParseName(folder, entry.path().filename().string());
      const uint64_t size = entry.file_size(error);
      if (file && !error) out.push_back({*file, size});
    }
    if (error) return ErrnoStatus(error.value(), "list " + directory_ + "/" + folder);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.file < b.file; });
  return out;
}

}  // namespace fs3
