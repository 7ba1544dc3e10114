#include "fs3/native/client/io_client.h"

#include <algorithm>
#include <bit>
#include <future>

#include "fs3/native/base/crc32c.h"

namespace fs3 {
namespace {

constexpr uint32_t kChunkBytesMin = 64U << 10;
constexpr uint32_t kChunkBytesMax = 64U << 20;
constexpr uint64_t kChunksMax = uint64_t{1} << 32;
// Pieces are handed over while later ones are still being hashed.
constexpr size_t kHashedBytesPerPost = 1U << 20;

// The piece of [offset, end) that lies in the chunk of `offset`.
IoPiece ChunkPiece(Ticket* ticket, IoKind kind, uint32_t request, const File& file,
                   const File::Extent& extent, uint64_t offset, uint64_t end) {
  IoPiece piece;
  piece.ticket = ticket;
  piece.kind = kind;
  piece.request = request;
  const auto index = static_cast<uint32_t>(offset / file.chunk_size());
  piece.chunk = {file.inode(), index, 0, 0};
  piece.chain = file.ChainOf(index);
  piece.offset = static_cast<uint32_t>(offset % file.chunk_size());
  piece.length =
      static_cast<uint32_t>(std::min<uint64_t>(end - offset, file.chunk_size() - piece.offset));
  piece.cut = file.CutOf(index, extent);
  piece.chunk_size = file.chunk_size();
  piece.truncate_version = extent.truncate_version;
  return piece;
}

}  // namespace

Result<std::unique_ptr<IoClient>> IoClient::Start(const EngineOptions& options) {
  std::unique_ptr<IoClient> client(new IoClient(options));
  Loop::Options loop_options;
  loop_options.name = "fs3-io";
  auto thread = LoopThread::Start(loop_options);
  if (!thread.ok()) return thread.status();
  client->thread_ = std::move(thread.value());
  client->engine_ = std::make_unique<Engine>(client->thread_->loop(), client->options_,
                                             client->counters_, client->completions_);
  return client;
}

IoClient::~IoClient() { Close(); }

void IoClient::Close() {
  const std::unique_lock lock(lifetime_);
  if (std::exchange(closed_, true)) return;
  std::promise<void> closed;
  thread_->loop().Post([&] { engine_->Close([&closed] { closed.set_value(); }); });
  closed.get_future().wait();
  thread_.reset();
}

Status IoClient::SetRouting(std::vector<ChainRoute> chains) {
  for (ChainRoute& chain : chains) {
    for (RouteMember& member : chain.serving) {
      auto address = ResolveEndpoint(member.endpoint);
      if (!address.ok()) return address.status();
      member.endpoint = address.value();
    }
  }
  const std::shared_lock lock(lifetime_);
  if (closed_) return Status::Ok();
  thread_->loop().Post([engine = engine_.get(), chains = std::move(chains)]() mutable {
    engine->SetRouting(std::move(chains));
  });
  return Status::Ok();
}

// ---- Files

Result<uint32_t> IoClient::OpenFile(InodeId inode, uint32_t chunk_size, std::vector<ChainId> chains,
                                    uint64_t length, uint64_t truncate_version) {
  if (!std::has_single_bit(chunk_size) || chunk_size < kChunkBytesMin ||
      chunk_size > kChunkBytesMax) {
    return Status(Code::kInvalidArgument,
                  "the chunk size must be a power of two from 64 KiB to 64 MiB");
  }
  if (chains.empty()) return Status(Code::kInvalidArgument, "a file needs at least one chain");
  const std::lock_guard lock(mutex_);
  const uint32_t handle = next_handle_++;
  files_[handle] =
      std::make_shared<File>(inode, chunk_size, std::move(chains), length, truncate_version);
  return handle;
}

void IoClient::CloseFile(uint32_t handle) {
  const std::lock_guard lock(mutex_);
  files_.erase(handle);
}

std::shared_ptr<File> IoClient::Find(uint32_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(handle);
  return found == files_.end() ? nullptr : found->second;
}

// The files of the requests, all of which must be known and within bounds.
Result<IoClient::Files> IoClient::FindAll(std::span<const IoRequest> requests,
                                          size_t memory_size) const {
  Files files;
  files.reserve(requests.size());
  const std::lock_guard lock(mutex_);
  for (const IoRequest& request : requests) {
    const auto found = files_.find(request.handle);
    if (found == files_.end()) return Status(Code::kNotFound, "unknown file handle");
    if (request.buffer_offset > memory_size ||
        request.length > memory_size - request.buffer_offset) {
      return Status(Code::kInvalidArgument, "a request reaches beyond the memory given");
    }
    const uint64_t end_max = kChunksMax * found->second->chunk_size();
    if (request.file_offset > end_max || request.length > end_max - request.file_offset) {
      return Status(Code::kInvalidArgument, "a request reaches beyond the largest file");
    }
    files.push_back(found->second);
  }
  return files;
}

// ---- Submission

std::shared_ptr<Ticket> IoClient::NewTicket(size_t requests, Nanoseconds timeout, bool in_queue) {
  const std::lock_guard lock(mutex_);
  auto ticket = std::make_shared<Ticket>(next_ticket_++, requests);
  ticket->deadline_ = BootClock::now() + timeout;
  ticket->in_queue_ = in_queue;
  return ticket;
}

void IoClient::Submit(const std::shared_ptr<Ticket>& ticket) {
  const std::shared_lock lock(lifetime_);
  if (closed_) return Refuse(ticket);
  SubmitPieces(ticket, 0, ticket->pieces_.size());
}

void IoClient::SubmitPieces(const std::shared_ptr<Ticket>& ticket, size_t begin, size_t end) {
  thread_->loop().Post([engine = engine_.get(), ticket, begin, end] {
    if (begin == 0) engine->AddTicket(ticket);
    engine->AddPieces(*ticket, begin, end);
  });
}

// The client is closed: nothing of it was handed over.
void IoClient::Refuse(const std::shared_ptr<Ticket>& ticket) {
  for (IoResult& result : ticket->results_) {
    result.code = static_cast<uint32_t>(Code::kUnavailable);
  }
  ticket->MarkDone();
  if (ticket->in_queue_) completions_.Push(ticket);
}

Result<std::shared_ptr<Ticket>> IoClient::SubmitRead(std::span<const IoRequest> requests,
                                                     std::span<uint8_t> into, Nanoseconds timeout,
                                                     bool in_queue) {
  auto files = FindAll(requests, into.size());
  if (!files.ok()) return files.status();
  const auto ticket = NewTicket(requests.size(), timeout, in_queue);
  ticket->pieces_.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const File& file = *files.value()[i];
    const File::Extent extent = file.extent();
    const uint64_t begin = requests[i].file_offset;
    const uint64_t end = std::min(extent.length, begin + requests[i].length);
    uint8_t* memory = into.data() + requests[i].buffer_offset;
    for (uint64_t offset = begin; offset < end;) {
      IoPiece piece = ChunkPiece(ticket.get(), IoKind::kRead, static_cast<uint32_t>(i), file,
                                 extent, offset, end);
      piece.memory = memory + (offset - begin);
      offset += piece.length;
      ticket->pieces_.push_back(std::move(piece));
    }
  }
  Submit(ticket);
  return ticket;
}

Result<std::shared_ptr<Ticket>> IoClient::SubmitWrite(std::span<const IoRequest> requests,
                                                      std::span<const uint8_t> source,
                                                      Nanoseconds timeout, bool in_queue) {
  auto files = FindAll(requests, source.size());
  if (!files.ok()) return files.status();
  const auto ticket = NewTicket(requests.size(), timeout, in_queue);
  for (size_t i = 0; i < requests.size(); ++i) {
    const File& file = *files.value()[i];
    const File::Extent extent = file.extent();
    const uint64_t begin = requests[i].file_offset;
    const uint64_t end = begin + requests[i].length;
    // Sent from where it is: the engine only reads it.
    auto* memory = const_cast<uint8_t*>(source.data()) + requests[i].buffer_offset;
    for (uint64_t offset = begin; offset < end;) {
      IoPiece piece = ChunkPiece(ticket.get(), IoKind::kWrite, static_cast<uint32_t>(i), file,
                                 extent, offset, end);
      piece.memory = memory + (offset - begin);
      offset += piece.length;
      ticket->pieces_.push_back(std::move(piece));
    }
    ticket->ends_.push_back(end);
  }
  ticket->files_ = std::move(files.value());
  const std::shared_lock lock(lifetime_);
  if (closed_) {
    Refuse(ticket);
    return ticket;
  }
  size_t begin = 0;
  size_t hashed = 0;
  auto& pieces = ticket->pieces_;
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].crc = Crc32c(pieces[i].memory, pieces[i].length);
    hashed += pieces[i].length;
    if (hashed < kHashedBytesPerPost || i + 1 == pieces.size()) continue;
    SubmitPieces(ticket, begin, i + 1);
    begin = i + 1;
    hashed = 0;
  }
  SubmitPieces(ticket, begin, pieces.size());
  return ticket;
}

IoPiece IoClient::ChainPiece(Ticket* ticket, IoKind kind, const File& file, ChainId chain) const {
  IoPiece piece;
  piece.ticket = ticket;
  piece.kind = kind;
  piece.chain = chain;
  piece.chunk.inode = file.inode();
  piece.chunk_size = file.chunk_size();
  return piece;
}

Result<std::shared_ptr<Ticket>> IoClient::SubmitTruncate(uint32_t handle, uint64_t length,
                                                         uint64_t truncate_version,
                                                         Nanoseconds timeout, bool in_queue) {
  const auto file = Find(handle);
  if (file == nullptr) return Status(Code::kNotFound, "unknown file handle");
  const uint64_t chunk_size = file->chunk_size();
  if (length > (kChunksMax - 1) * chunk_size) {
    return Status(Code::kInvalidArgument, "the length is beyond the largest file");
  }
  const auto ticket = NewTicket(1, timeout, in_queue);
  const auto first_gone = static_cast<uint32_t>((length + chunk_size - 1) / chunk_size);
  for (ChainId chain : file->DistinctChains()) {
    IoPiece piece = ChainPiece(ticket.get(), IoKind::kRemove, *file, chain);
    piece.chunk.index = first_gone;
    piece.truncate_version = truncate_version;
    ticket->pieces_.push_back(std::move(piece));
  }
  if (length % chunk_size != 0) {
    const uint32_t last = first_gone - 1;
    IoPiece piece = ChainPiece(ticket.get(), IoKind::kTruncate, *file, file->ChainOf(last));
    piece.chunk.index = last;
    piece.length = static_cast<uint32_t>(length % chunk_size);
    piece.truncate_version = truncate_version;
    ticket->pieces_.push_back(std::move(piece));
  }
  Submit(ticket);
  return ticket;
}

Result<std::shared_ptr<Ticket>> IoClient::SubmitRemove(uint32_t handle, uint64_t truncate_version,
                                                       Nanoseconds timeout, bool in_queue) {
  return SubmitTruncate(handle, 0, truncate_version, timeout, in_queue);
}

Result<std::shared_ptr<Ticket>> IoClient::SubmitQueryLast(uint32_t handle, Nanoseconds timeout,
                                                          bool in_queue) {
  const auto file = Find(handle);
  if (file == nullptr) return Status(Code::kNotFound, "unknown file handle");
  const auto ticket = NewTicket(1, timeout, in_queue);
  for (ChainId chain : file->DistinctChains()) {
    ticket->pieces_.push_back(ChainPiece(ticket.get(), IoKind::kQueryLast, *file, chain));
  }
  Submit(ticket);
  return ticket;
}

Result<std::shared_ptr<Ticket>> IoClient::SubmitFlush(uint32_t handle, Nanoseconds timeout,
                                                      bool in_queue) {
  const auto file = Find(handle);
  if (file == nullptr) return Status(Code::kNotFound, "unknown file handle");
  const auto ticket = NewTicket(1, timeout, in_queue);
  for (ChainId chain : file->DistinctChains()) {
    ticket->pieces_.push_back(ChainPiece(ticket.get(), IoKind::kFlush, *file, chain));
  }
  Submit(ticket);
  return ticket;
}

std::vector<std::pair<std::string, uint64_t>> IoClient::Counters() const {
  std::vector<std::pair<std::string, uint64_t>> out;
  counters_.ForEach(
      [&](const char* name, const Counter& counter) { out.emplace_back(name, counter.value()); });
  return out;
}

}  // namespace fs3
