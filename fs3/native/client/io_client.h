// IoClient: chunk IO on files for any thread. Splits calls by chunk, hands the pieces to the
// engine on its own thread, and tells when they are done (design section 8).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs3/native/base/status.h"
#include "fs3/native/client/completion_queue.h"
#include "fs3/native/client/counters.h"
#include "fs3/native/client/engine.h"
#include "fs3/native/client/file.h"
#include "fs3/native/client/io_types.h"
#include "fs3/native/client/ticket.h"

namespace fs3 {

// Memory given to a Submit must stay valid until its ticket is done.
class IoClient {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  static Result<std::unique_ptr<IoClient>> Start(const EngineOptions& options);
  ~IoClient();
  IoClient(const IoClient&) = delete;
  IoClient& operator=(const IoClient&) = delete;

  // Newer versions of some chains. Host names are resolved, which may wait.
  Status SetRouting(std::vector<ChainRoute> chains);

  // kInvalidArgument: chunk size or chains.
  Result<uint32_t> OpenFile(InodeId inode, uint32_t chunk_size, std::vector<ChainId> chains,
                            uint64_t length, uint64_t truncate_version);
  void CloseFile(uint32_t handle);
  // Null when unknown.
  std::shared_ptr<File> Find(uint32_t handle) const;

  // kNotFound: unknown handle; kInvalidArgument: a range leaves the memory or the chunk indexes.
  // `in_queue`: the ticket also appears in completions().
  Result<std::shared_ptr<Ticket>> SubmitRead(std::span<const IoRequest> requests,
                                             std::span<uint8_t> into, Nanoseconds timeout,
                                             bool in_queue);
  Result<std::shared_ptr<Ticket>> SubmitWrite(std::span<const IoRequest> requests,
                                              std::span<const uint8_t> source, Nanoseconds timeout,
                                              bool in_queue);
  // These have one result; its length is a number of chunks, or the end of the last byte.
  Result<std::shared_ptr<Ticket>> SubmitTruncate(uint32_t handle, uint64_t length,
                                                 uint64_t truncate_version, Nanoseconds timeout,
                                                 bool in_queue);
  Result<std::shared_ptr<Ticket>> SubmitRemove(uint32_t handle, uint64_t truncate_version,
                                               Nanoseconds timeout, bool in_queue);
  Result<std::shared_ptr<Ticket>> SubmitQueryLast(uint32_t handle, Nanoseconds timeout,
                                                  bool in_queue);
  Result<std::shared_ptr<Ticket>> SubmitFlush(uint32_t handle, Nanoseconds timeout, bool in_queue);

  CompletionQueue& completions() { return completions_; }
  std::vector<std::pair<std::string, uint64_t>> Counters() const;

  // Fails what is in flight with kUnavailable and ends the thread; idempotent.
  void Close();

 private:
  using Files = std::vector<std::shared_ptr<File>>;

  explicit IoClient(const EngineOptions& options) : options_(options) {}

  std::shared_ptr<Ticket> NewTicket(size_t requests, Nanoseconds timeout, bool in_queue);
  Result<Files> FindAll(std::span<const IoRequest> requests, size_t memory_size) const;
  IoPiece ChainPiece(Ticket* ticket, IoKind kind, const File& file, ChainId chain) const;
  // Hands the whole ticket to the engine.
  void Submit(const std::shared_ptr<Ticket>& ticket);
  void SubmitPieces(const std::shared_ptr<Ticket>& ticket, size_t begin, size_t end);
  void Refuse(const std::shared_ptr<Ticket>& ticket);

  const EngineOptions options_;
  ClientCounters counters_;
  CompletionQueue completions_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LoopThread> thread_;

  // Shared while a call is handed over, so that Close sees all of it or nothing.
  std::shared_mutex lifetime_;
  bool closed_ = false;       // guarded by lifetime_
  mutable std::mutex mutex_;  // guards the rest
  std::unordered_map<uint32_t, std::shared_ptr<File>> files_;
  uint32_t next_handle_ = 1;
  uint64_t next_ticket_ = 1;
};

}  // namespace fs3
