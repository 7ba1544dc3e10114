// What clients ask a target for.
#include <algorithm>
#include <utility>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/server/target.h"
#include "fs3/native/server/target_data.h"

namespace fs3 {
namespace {

constexpr size_t kListPage = 256;

uint32_t Number(Code code) { return static_cast<uint32_t>(code); }

template <typename ReplyType>
ReplyType WithCode(Code code) {
  ReplyType reply;
  reply.code = Number(code);
  return reply;
}

}  // namespace

// ---- Reads

void Target::Read(const ReadOp& op, uint8_t* into, Done<ReadReply> done) {
  const ChunkId chunk = ChunkId::Decode(op.chunk.data());
  if (!closing_ && machine_.IsClean(op.chain_version, chunk)) {
    ReadStore(op, std::nullopt, into, std::move(done));
    return;
  }
  const replica::Token token = NewToken();
  reads_.emplace(token, WaitingRead{op, into, std::move(done)});
  Tell(
      [&](replica::Effects* effects) { machine_.OnRead(token, op.chain_version, chunk, effects); });
}

void Target::ReadStore(const ReadOp& op, std::optional<Version> version, uint8_t* into,
                       Done<ReadReply> done) {
  ReadRequest request;
  request.chunk = ChunkId::Decode(op.chunk.data());
  request.offset = op.offset;
  request.length = op.length;
  request.version = version;
  request.into = into;
  store_->chunks().Read(
      request, [this, op, into, done = std::move(done)](Result<ReadResult> result) mutable {
        if (result.status().code() == Code::kNotFound) return ReadMissing(op, std::move(done));
        if (!result.ok()) return done(WithCode<ReadReply>(result.status().code()));
        const ReadResult& read = result.value();
        if (op.truncate_version < read.truncate_version) {
          return done(WithCode<ReadReply>(Code::kStaleHandle));
        }
        ReadReply reply{Number(Code::kOk), read.size, WireVersion::From(read.version), read.crc, 0};
        const uint32_t end = std::max(op.cut, op.offset);
        if (op.truncate_version > read.truncate_version && op.offset + read.size > end) {
          reply.length = end - op.offset;
          reply.crc32c = Crc32c(into, reply.length);
        }
        shard_.counters.reads.Add();
        shard_.counters.read_bytes.Add(reply.length);
        done(reply);
      });
}

// No chunk, or a tombstone, which knows of cuts.
void Target::ReadMissing(const ReadOp& op, Done<ReadReply> done) {
  const ChunkId chunk = ChunkId::Decode(op.chunk.data());
  store_->chunks().Stat(chunk, [this, op, done = std::move(done)](Result<ChunkInfo> info) mutable {
    ReadReply reply;
    if (info.ok() && info.value().committed) {
      const VersionInfo& committed = *info.value().committed;
      if (op.truncate_version < committed.truncate_version) {
        reply.code = Number(Code::kStaleHandle);
      }
      reply.version = WireVersion::From(committed.version);
    }
    shard_.counters.reads.Add();
    done(reply);
  });
}

// ---- Updates

void Target::Write(const WriteOp& op, std::shared_ptr<FrameData> frame,
                   std::span<const uint8_t> data, Done<UpdateReply> done) {
  CheckSpace(/*forget_downstream=*/false);
  auto payload = std::make_shared<UpdateData>();
  payload->keep = std::move(frame);
  payload->bytes = data;
  payload->crc = op.crc32c;
  replica::Update update;
  update.chunk = ChunkId::Decode(op.chunk.data());
  update.kind = replica::UpdateKind::kWrite;
  update.tag = {op.client, op.channel, op.sequence, op.acknowledged_through};
  update.offset = op.offset;
  update.length = op.length;
  update.cut = op.cut;
  update.chunk_size = op.chunk_size;
  update.truncate_version = op.truncate_version;
  update.payload = std::move(payload);
  shard_.counters.writes.Add();
  shard_.counters.written_bytes.Add(op.length);
  ClientUpdate(op.chain_version, std::move(update), std::move(done));
}

void Target::Truncate(const TruncateOp& op, Done<UpdateReply> done) {
  replica::Update update;
  update.chunk = ChunkId::Decode(op.chunk.data());
  update.kind = replica::UpdateKind::kTruncate;
  update.length = op.length;
  update.truncate_version = op.truncate_version;
  ClientUpdate(op.chain_version, std::move(update), std::move(done));
}

void Target::ClientUpdate(ChainVersion chain_version, replica::Update update,
                          Done<UpdateReply> done) {
  const replica::Token token = NewToken();
  clients_.emplace(token, std::move(done));
  Tell([&](replica::Effects* effects) {
    machine_.OnClientUpdate(token, chain_version, std::move(update), effects);
  });
}

// One remove call: pages through the chunks of a range, each of which is an update of its own.
class Target::RemoveRange : public std::enable_shared_from_this<RemoveRange> {
 public:
  RemoveRange(std::shared_ptr<Target> target, const RemoveOp& op, Done<RemoveReply> done)
      : target_(std::move(target)), op_(op), done_(std::move(done)) {}

  void Continue(const ChunkId& from) {
    const size_t page = std::min<size_t>(kListPage, op_.limit - issued_);
    target_->store_->chunks().List(
        from, page,
        [self = shared_from_this()](const Result<ChunkList>& list) { self->OnList(list); });
  }

 private:
  void OnList(const Result<ChunkList>& list) {
    next_.reset();
    if (!list.ok()) {
      reply_.code = Number(list.status().code());
      return Finish();
    }
    under_way_ = 1;  // this page
    next_ = list.value().next;
    for (const ChunkInfo& info : list.value().chunks) {
      if (!IsInside(info.chunk)) {
        next_.reset();
        break;
      }
      if (IsToRemove(info)) Remove(info);
    }
    if (next_ && !IsInside(*next_)) next_.reset();
    FinishOne();
  }

  bool IsInside(const ChunkId& chunk) const {
    return chunk.inode == op_.inode && chunk.index <= op_.last_index;
  }

  bool IsToRemove(const ChunkInfo& info) const {
    if (!info.pending.empty()) return true;
    return info.committed && info.committed->truncate_version < op_.truncate_version;
  }

  // A tombstone, too: it must learn of the truncate version.
  void Remove(const ChunkInfo& info) {
    ++issued_;
    ++under_way_;
    const bool counts = !info.pending.empty() || !info.committed->tombstone;
    replica::Update update;
    update.chunk = info.chunk;
    update.kind = replica::UpdateKind::kRemove;
    update.truncate_version = op_.truncate_version;
    target_->ClientUpdate(op_.chain_version, std::move(update),
                          [self = shared_from_this(), counts](const UpdateReply& reply) {
                            if (reply.code != Number(Code::kOk)) {
                              self->reply_.code = reply.code;
                            } else if (counts) {
                              ++self->reply_.removed;
                            }
                            self->FinishOne();
                          });
  }

  void FinishOne() {
    if (--under_way_ > 0) return;
    const bool failed = reply_.code != Number(Code::kOk);
    if (failed || !next_) return Finish();
    if (issued_ < op_.limit) return Continue(*next_);
    reply_.more = 1;
    reply_.next_index = next_->index;
    Finish();
  }

  void Finish() { done_(reply_); }

  const std::shared_ptr<Target> target_;
  const RemoveOp op_;
  Done<RemoveReply> done_;
  RemoveReply reply_;
  std::optional<ChunkId> next_;
  size_t issued_ = 0;
  size_t under_way_ = 0;
};

void Target::Remove(const RemoveOp& op, Done<RemoveReply> done) {
  if (closing_ || op.chain_version != machine_.chain_version() || !machine_.is_head()) {
    return done(WithCode<RemoveReply>(Code::kStaleRouting));
  }
  const ChunkId first{op.inode, op.first_index, 0, 0};
  std::make_shared<RemoveRange>(shared_from_this(), op, std::move(done))->Continue(first);
}

// ---- Queries

void Target::QueryLast(const QueryLastOp& op, Done<QueryLastReply> done) {
  if (closing_ || !machine_.IsTail(op.chain_version)) {
    return done(WithCode<QueryLastReply>(Code::kStaleRouting));
  }
  FindLast({op.inode, 0, 0, 0}, QueryLastReply(), std::move(done));
}

// Pages through the chunks of the inode from `from` on; `best` is the last one seen so far.
void Target::FindLast(const ChunkId& from, QueryLastReply best, Done<QueryLastReply> done) {
  store_->chunks().List(
      from, kListPage,
      [this, inode = from.inode, best, done = std::move(done)](Result<ChunkList> list) mutable {
        if (!list.ok()) return done(WithCode<QueryLastReply>(list.status().code()));
        for (const ChunkInfo& info : list.value().chunks) {
          if (info.chunk.inode != inode || !info.committed || info.committed->tombstone) continue;
          if (info.committed->length == 0) continue;
          best.found = 1;
          best.index = info.chunk.index;
          best.length = info.committed->length;
        }
        const auto& next = list.value().next;
        if (!next || next->inode != inode) return done(best);
        FindLast(*next, best, std::move(done));
      });
}

void Target::Flush(ChainVersion chain_version, Done<FlushReply> done) {
  if (closing_ || chain_version != machine_.chain_version() || !machine_.is_serving()) {
    return done(WithCode<FlushReply>(Code::kStaleRouting));
  }
  store_->chunks().Flush([done = std::move(done)](const Status& status) mutable {
    done(WithCode<FlushReply>(status.code()));
  });
}

void Target::Stat(const ChunkId& chunk, Done<StatReply> done) {
  if (closing_) return done(WithCode<StatReply>(Code::kUnavailable));
  store_->chunks().Stat(chunk, [done = std::move(done)](Result<ChunkInfo> info) mutable {
    if (!info.ok()) return done(WithCode<StatReply>(info.status().code()));
    if (!info.value().committed) return done(WithCode<StatReply>(Code::kNotFound));
    const VersionInfo& committed = *info.value().committed;
    StatReply reply;
    reply.length = committed.length;
    reply.version = WireVersion::From(committed.version);
    reply.truncate_version = committed.truncate_version;
    reply.chunk_size = info.value().chunk_size;
    reply.live = committed.tombstone ? 0 : 1;
    done(reply);
  });
}

}  // namespace fs3
