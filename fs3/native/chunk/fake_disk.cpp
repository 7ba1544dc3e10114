#include "fs3/native/chunk/fake_disk.h"

#include <algorithm>
#include <cstring>

namespace fs3 {
namespace {

constexpr uint64_t kSector = 512;

Status PowerIsOff() { return {Code::kUnavailable, "power is off"}; }

}  // namespace

void FakeDisk::Start(Function<Status()> effect, Done done) {
  if (deferred_) {
    waiting_.emplace_back(std::move(effect), std::move(done));
  } else {
    done(effect());
  }
}

bool FakeDisk::RunOne() {
  if (waiting_.empty()) return false;
  const auto at = waiting_.begin() + static_cast<ptrdiff_t>(power_.Below(waiting_.size()));
  auto [effect, done] = std::move(*at);
  waiting_.erase(at);
  done(effect());
  return true;
}

void FakeDisk::Put(std::vector<uint8_t>& bytes, uint64_t offset, std::span<const uint8_t> data) {
  if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size());
  std::copy(data.begin(), data.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
}

void FakeDisk::Read(FileId file, uint64_t offset, std::span<uint8_t> data, Done done) {
  Start(
      [this, file, offset, data] {
        if (!power_.is_on()) return PowerIsOff();
        const auto at = files_.find(file);
        if (at == files_.end()) return Status(Code::kNotFound, "no such file");
        if (offset + data.size() > at->second.now.size()) {
          return Status(Code::kCorrupt, "read past the end of the file");
        }
        std::memcpy(data.data(), at->second.now.data() + offset, data.size());
        return Status::Ok();
      },
      std::move(done));
}

void FakeDisk::Write(FileId file, uint64_t offset, std::span<const uint8_t> data, Done done) {
  Start(
      [this, file, offset, data] {
        const bool was_on = power_.is_on();
        const bool is_on = power_.Tick();
        if (!was_on) return PowerIsOff();
        // The write at which power fails may reach the media in part.
        File& into = files_[file];
        Put(into.now, offset, data);
        into.unsynced.push_back({offset, {data.begin(), data.end()}});
        written_bytes_ += data.size();
        return is_on ? Status::Ok() : PowerIsOff();
      },
      std::move(done));
}

void FakeDisk::Sync(FileId file, Done done) {
  Start(
      [this, file] {
        if (!power_.Tick()) return PowerIsOff();
        File& synced = files_[file];
        for (const UnsyncedWrite& write : synced.unsynced) {
          Put(synced.durable, write.offset, write.data);
        }
        synced.unsynced.clear();
        return Status::Ok();
      },
      std::move(done));
}

void FakeDisk::Allocate(FileId file, uint64_t offset, uint64_t length, Done done) {
  Start(
      [this, file, offset, length] {
        if (!power_.Tick()) return PowerIsOff();
        File& grown = files_[file];
        grown.now.resize(std::max<uint64_t>(grown.now.size(), offset + length));
        return Status::Ok();
      },
      std::move(done));
}

// Takes effect on the media at once: the worst case for whoever still needs the bytes.
void FakeDisk::Punch(FileId file, uint64_t offset, uint64_t length, Done done) {
  Start(
      [this, file, offset, length] {
        if (!power_.Tick()) return PowerIsOff();
        File& punched = files_[file];
        for (auto* bytes : {&punched.now, &punched.durable}) {
          const uint64_t begin = std::min<uint64_t>(offset, bytes->size());
          const uint64_t end = std::min<uint64_t>(offset + length, bytes->size());
          std::fill(bytes->begin() + static_cast<ptrdiff_t>(begin),
                    bytes->begin() + static_cast<ptrdiff_t>(end), 0);
        }
        std::erase_if(punched.unsynced, [&](const UnsyncedWrite& write) {
          return write.offset >= offset && write.offset + write.data.size() <= offset + length;
        });
        return Status::Ok();
      },
      std::move(done));
}

void FakeDisk::Remove(FileId file, Done done) {
  Start(
      [this, file] {
        if (!power_.Tick()) return PowerIsOff();
        files_.erase(file);
        return Status::Ok();
      },
      std::move(done));
}

Result<std::vector<Disk::FileInfo>> FakeDisk::List() {
  std::vector<FileInfo> out;
  for (const auto& [file, content] : files_) out.push_back({file, content.now.size()});
  return out;
}

void FakeDisk::LosePower() {
  for (auto& [id, file] : files_) {
    std::vector<uint8_t> found = std::move(file.durable);
    found.resize(std::max(found.size(), file.now.size()));
    for (const UnsyncedWrite& write : file.unsynced) {
      const uint64_t fate = power_.Below(3);
      if (fate == 0) continue;
      for (uint64_t at = 0; at < write.data.size(); at += kSector) {
        if (fate == 2 && power_.Below(2) == 0) continue;
        const uint64_t size = std::min<uint64_t>(kSector, write.data.size() - at);
        Put(found, write.offset + at, std::span(write.data).subspan(at, size));
      }
    }
    file.now = found;
    file.durable = std::move(found);
    file.unsynced.clear();
  }
}

void FakeDisk::FlipBit(FileId file, uint64_t bit) {
  files_.at(file).now.at(bit / 8) ^= static_cast<uint8_t>(1U << bit % 8);
}

const std::vector<uint8_t>* FakeDisk::Content(FileId file) const {
  const auto at = files_.find(file);
  return at == files_.end() ? nullptr : &at->second.now;
}

void MemoryMetaKv::Apply(Map& map, const Batch& batch) {
  for (const Mutation& mutation : batch) {
    if (mutation.value) {
      map[mutation.key] = *mutation.value;
    } else {
      map.erase(mutation.key);
    }
  }
}

void MemoryMetaKv::Start(Function<void()> operation) {
  if (deferred_) {
    waiting_.push_back(std::move(operation));
  } else {
    operation();
  }
}

bool MemoryMetaKv::RunOne() {
  if (waiting_.empty()) return false;
  Function<void()> next = std::move(waiting_.front());
  waiting_.erase(waiting_.begin());
  next();
  return true;
}

void MemoryMetaKv::Write(Batch batch, Done done) {
  Start([this, batch = std::move(batch), done = std::move(done)]() mutable {
    if (!power_.Tick()) return done(PowerIsOff());
    Apply(now_, batch);
    unsynced_.push_back(std::move(batch));
    done(Status::Ok());
  });
}

void MemoryMetaKv::Sync(Done done) {
  Start([this, done = std::move(done)]() mutable {
    if (!power_.Tick()) return done(PowerIsOff());
    for (const Batch& batch : unsynced_) Apply(durable_, batch);
    unsynced_.clear();
    done(Status::Ok());
  });
}

void MemoryMetaKv::Get(std::string key, GetDone done) {
  Start([this, key = std::move(key), done = std::move(done)]() mutable {
    if (!power_.is_on()) return done(PowerIsOff());
    const auto at = now_.find(key);
    done(at == now_.end() ? std::optional<std::string>() : at->second);
  });
}

void MemoryMetaKv::Scan(std::string begin, std::string end, size_t limit, ScanDone done) {
  Start([this, begin = std::move(begin), end = std::move(end), limit,
         done = std::move(done)]() mutable {
    if (!power_.is_on()) return done(PowerIsOff());
    std::vector<Pair> out;
    for (auto it = now_.lower_bound(begin); it != now_.end() && it->first < end; ++it) {
      if (out.size() == limit) break;
      out.push_back(*it);
    }
    done(std::move(out));
  });
}

void MemoryMetaKv::LosePower() {
  const uint64_t kept = power_.Below(unsynced_.size() + 1);
  for (uint64_t i = 0; i < kept; ++i) Apply(durable_, unsynced_[i]);
  unsynced_.clear();
  now_ = durable_;
}

}  // namespace fs3
