#include "fs3/native/replica/replica.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fs3::replica {
namespace {

constexpr size_t kExpiredClientsMax = 1 << 16;

void Require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "replica: violated: %s\n", claim);
  std::abort();
}

}  // namespace

Replica::Replica(TargetId self, const Limits& limits, std::vector<Uncommitted> recovered)
    : self_(self), limits_(limits), recovered_(std::move(recovered)) {}

// ---- Chain changes

void Replica::OnChain(const Chain& chain, Effects* effects) {
  if (chain.version <= chain_version_) return;
  AdoptPosition(chain);
  source_.reset();
  sink_.reset();
  switch (role_) {
    case Role::kNone:
      LeaveChain(Code::kStaleRouting, effects);
      break;
    case Role::kSyncing:
      BecomeSyncing(effects);
      break;
    case Role::kServing:
      ContinueServing(effects);
      break;
  }
  ReconsiderReads(effects);
}

void Replica::AdoptPosition(const Chain& chain) {
  chain_version_ = chain.version;
  next_sequence_ = 1;
  role_ = Role::kNone;
  is_head_ = is_tail_ = successor_syncing_ = downstream_full_ = false;
  successor_.reset();
  tail_ = 0;
  for (size_t i = 0; i < chain.members.size(); ++i) {
    const Member& member = chain.members[i];
    if (!member.syncing) tail_ = member.target;
    if (member.target != self_) continue;
    role_ = member.syncing ? Role::kSyncing : Role::kServing;
    is_head_ = i == 0 && !member.syncing;
    if (i + 1 < chain.members.size()) {
      successor_ = chain.members[i + 1].target;
      successor_syncing_ = chain.members[i + 1].syncing;
    }
  }
  is_tail_ = role_ == Role::kServing && tail_ == self_;
}

// Answers the predecessor under the old chain version, and the clients too if `clients`: those of a
// head that stays head keep waiting, their updates go on.
void Replica::AnswerWaiting(Slot* slot, Code code, bool clients, Effects* effects) {
  if (slot->current) {
    for (Token token : slot->current->forwards) effects->push_back(Acknowledge{token, code, false});
    slot->current->forwards.clear();
    if (clients) {
      for (Token token : slot->current->clients) effects->push_back(Reply{token, code, {}, 0});
      slot->current->clients.clear();
    }
  }
  std::erase_if(slot->queue, [&](const Work& work) {
    if (std::holds_alternative<ClientWork>(work) && !clients) return false;
    AnswerWork(work, code, effects);
    if (!std::holds_alternative<CopyWork>(work)) --updates_;
    return true;
  });
}

void Replica::AnswerWork(const Work& work, Code code, Effects* effects) {
  if (const auto* client = std::get_if<ClientWork>(&work)) {
    for (Token token : client->tokens) effects->push_back(Reply{token, code, {}, 0});
  } else if (const auto* forward = std::get_if<ForwardWork>(&work)) {
    effects->push_back(Acknowledge{forward->token, code, false});
  }
}

// Out of the chain. Uncommitted versions stay, here and in the store: this target may be the only
// one left that holds them.
void Replica::LeaveChain(Code code, Effects* effects) {
  for (auto& [chunk, slot] : slots_) {
    AnswerWaiting(&slot, code, true, effects);
    if (slot.current && slot.current->is_copy) slot.current.reset();
  }
  std::erase_if(slots_, [](const auto& item) { return !item.second.current; });
}

// The predecessor will send every chunk whole; what is uncommitted here is old or lost history.
void Replica::BecomeSyncing(Effects* effects) {
  sink_.emplace(SyncSink());
  recovered_.clear();
  LeaveChain(Code::kStaleRouting, effects);
  for (auto at = slots_.begin(); at != slots_.end();) {
    InFlight& current = *at->second.current;
    current.doomed = true;
    if (!current.persisted) {
      ++at;
      continue;
    }
    effects->push_back(Discard{at->first, current.update->version});
    --updates_;
    at = slots_.erase(at);
  }
}

void Replica::ContinueServing(Effects* effects) {
  AdoptRecovered(effects);
  if (successor_syncing_) source_.emplace(SyncSource());
  for (auto at = slots_.begin(); at != slots_.end();) {
    const auto here = at++;
    Slot& slot = here->second;
    AnswerWaiting(&slot, Code::kStaleRouting, !is_head_, effects);
    if (slot.current && slot.current->is_copy) slot.current.reset();  // copying starts again
    if (slot.current) {
      InFlight& current = *slot.current;
      current.forwarded = current.persisted_sent = current.acknowledged = false;
      current.upstream_persisted |= is_head_;
      Advance(here, effects);
    } else if (!slot.loading || slot.queue.empty()) {
      slot.loading = false;
      StartNext(here, effects);
    }
  }
  ContinueCopying(effects);
}

// Nobody waits for these, but acknowledged writes may be among them: a tail commits them before it
// answers anything, also when a SYNCING successor is there, which gets them with the copy.
void Replica::AdoptRecovered(Effects* effects) {
  for (const Uncommitted& found : std::exchange(recovered_, {})) {
    if (is_tail_) {
      effects->push_back(Commit{found.chunk, found.version});
      continue;
    }
    Slot& slot = slots_[found.chunk];
    auto update = std::make_shared<Update>();
    update->chunk = found.chunk;
    update->version = found.version;
    update->kind = UpdateKind::kReplace;
    slot.current.emplace(InFlight());
    slot.current->update = std::move(update);
    slot.current->persisted = true;
    ++updates_;
  }
}

// ---- Updates: into the slot

void Replica::OnClientUpdate(Token token, ChainVersion chain_version, Update update,
                             Effects* effects) {
  if (chain_version != chain_version_ || !is_head_) {
    effects->push_back(Reply{token, Code::kStaleRouting, {}, 0});
    return;
  }
  const auto found = slots_.find(update.chunk);
  if (found != slots_.end() && JoinSame(&found->second, token, update)) return;
  if (updates_ >= limits_.updates_max) {
    effects->push_back(Reply{token, Code::kBusy, {}, 0});
    return;
  }
  ++updates_;
  const ChunkId chunk = update.chunk;
  Enqueue(chunk, ClientWork{{token}, std::move(update)}, effects);
}

// A retry of what is under way or queued waits for the same result.
bool Replica::JoinSame(Slot* slot, Token token, const Update& update) {
  if (slot->current && slot->current->update->tag.Names(update.tag)) {
    slot->current->clients.push_back(token);
    return true;
  }
  for (Work& work : slot->queue) {
    auto* client = std::get_if<ClientWork>(&work);
    if (client == nullptr || !client->update.tag.Names(update.tag)) continue;
    client->tokens.push_back(token);
    return true;
  }
  return false;
}

void Replica::OnForward(Token token, ChainVersion chain_version, Update update,
                        bool upstream_persisted, Effects* effects) {
  if (chain_version != chain_version_ || role_ == Role::kNone || is_head_) {
    effects->push_back(Acknowledge{token, Code::kStaleRouting, false});
    return;
  }
  const auto found = slots_.find(update.chunk);
  if (found != slots_.end() && found->second.current && !found->second.current->doomed) {
    InFlight& current = *found->second.current;
    if (update.version == current.update->version) {  // sent again
      current.forwards.push_back(token);
      current.upstream_persisted |= upstream_persisted;
      Advance(found, effects);
      return;
    }
    if (update.version < current.update->version) {  // a late duplicate: committed long ago
      effects->push_back(Acknowledge{token, Code::kOk, IsFull()});
      return;
    }
  }
  if (updates_ >= limits_.updates_max) {
    effects->push_back(Acknowledge{token, Code::kBusy, false});
    return;
  }
  ++updates_;
  const ChunkId chunk = update.chunk;
  Enqueue(chunk, ForwardWork{token, std::move(update), upstream_persisted}, effects);
}

void Replica::Enqueue(const ChunkId& chunk, Work work, Effects* effects) {
  const auto at = slots_.try_emplace(chunk).first;
  at->second.queue.push_back(std::move(work));
  StartNext(at, effects);
}

// Begins with the first of the queue if the slot is free; forgets a slot that has nothing left.
void Replica::StartNext(Slots::iterator at, Effects* effects) {
  Slot& slot = at->second;
  if (slot.current || slot.loading) return;
  if (slot.queue.empty()) {
    slots_.erase(at);
    return;
  }
  slot.loading = true;
  effects->push_back(LoadChunk{at->first});
}

void Replica::OnLoaded(const ChunkId& chunk, Code code, const std::optional<ChunkState>& state,
                       Effects* effects) {
  const auto at = slots_.find(chunk);
  if (at == slots_.end() || !at->second.loading) return;
  Slot& slot = at->second;
  slot.loading = false;
  if (code != Code::kOk) {
    Fail(code, effects);
    return;
  }
  if (slot.queue.empty() || slot.current) {
    StartNext(at, effects);
    return;
  }
  Work work = std::move(slot.queue.front());
  slot.queue.pop_front();
  bool started = false;
  if (auto* client = std::get_if<ClientWork>(&work)) {
    started = Start(&slot, std::move(*client), state, effects);
  } else if (auto* forward = std::get_if<ForwardWork>(&work)) {
    started = Start(&slot, std::move(*forward), state, effects);
  } else {
    started = StartCopy(&slot, chunk, state, effects);
  }
  if (started) {
    Advance(at, effects);
  } else {
    StartNext(at, effects);
  }
}

bool Replica::Start(Slot* slot, ClientWork work, const std::optional<ChunkState>& state,
                    Effects* effects) {
  Reply reply;
  if (AnswerAtOnce(work.update, state, &reply)) {
    for (Token token : work.tokens) {
      reply.token = token;
      effects->push_back(reply);
    }
    --updates_;
    return false;
  }
  if (state && state->version.chain_version == chain_version_) {
    next_sequence_ = std::max(next_sequence_, state->version.sequence + 1);
  }
  InFlight& current = slot->current.emplace(InFlight());
  current.upstream_persisted = true;
  const bool must_cut = work.update.kind == UpdateKind::kWrite && state && state->live &&
                        work.update.truncate_version > state->truncate_version &&
                        work.update.cut < state->length;
  if (must_cut) {
    StartPendingCut(slot, work.update, effects);
    slot->queue.push_front(std::move(work));
    return true;
  }
  auto update = std::make_shared<Update>(std::move(work.update));
  update->version = {chain_version_, next_sequence_++};
  if (state) update->expired_clients = ExpiredIn(*state);
  if (update->kind != UpdateKind::kWrite) update->chunk_size = state->chunk_size;
  if (update->kind == UpdateKind::kRemove && !state->live) {  // it only learns of the cut
    update->kind = UpdateKind::kTruncate;
    update->length = 0;
  }
  current.clients = std::move(work.tokens);
  current.update = std::move(update);
  effects->push_back(Persist{current.update});
  return true;
}

// The write knows of a cut that this chunk has not seen: the cut comes first, as an update of its
// own, so that no byte from before it can show up again.
void Replica::StartPendingCut(Slot* slot, const Update& update, Effects* effects) {
  auto cut = std::make_shared<Update>();
  cut->chunk = update.chunk;
  cut->version = {chain_version_, next_sequence_++};
  cut->kind = UpdateKind::kTruncate;
  cut->length = update.cut;
  cut->chunk_size = update.chunk_size;
  cut->truncate_version = update.truncate_version;
  slot->current->update = std::move(cut);
  ++updates_;
  effects->push_back(Persist{slot->current->update});
}

// Whether the update needs no new version: it was done before, has nothing to do, or is refused.
bool Replica::AnswerAtOnce(const Update& update, const std::optional<ChunkState>& state,
                           Reply* reply) const {
  const bool is_write = update.kind == UpdateKind::kWrite;
  if (!state) {
    if (is_write && IsFull()) reply->code = Code::kNoSpace;
    return !is_write || IsFull();  // nothing to cut or remove
  }
  reply->version = state->version;
  reply->length = state->live ? state->length : 0;
  const UpdateTag& tag = update.tag;
  size_t kept = 0;
  for (const UpdateRecord& record : state->records) {
    const bool same_channel = record.client == tag.client && record.channel == tag.channel;
    if (same_channel && record.sequence == tag.sequence) {
      reply->version = record.version;
      reply->length = record.length;
      return true;
    }
    if (same_channel && record.sequence > tag.sequence) {  // its client has long gone on
      reply->code = Code::kConflict;
      return true;
    }
    const bool dropped = same_channel && record.sequence <= tag.acknowledged_through;
    if (!dropped && !expired_.contains(record.client)) ++kept;
  }
  if (is_write && state->live && update.chunk_size != state->chunk_size) {
    reply->code = Code::kInvalidArgument;
    return true;
  }
  if (update.truncate_version < state->truncate_version) {
    reply->code = Code::kStaleHandle;
    return true;
  }
  if (!is_write && update.truncate_version == state->truncate_version) return true;  // cut before
  if (kept >= kRecordsMax) {
    reply->code = Code::kBusy;
    return true;
  }
  const bool grows = is_write && update.offset + update.length > reply->length;
  if (grows && IsFull()) reply->code = Code::kNoSpace;
  return grows && IsFull();
}

std::vector<Incarnation> Replica::ExpiredIn(const ChunkState& state) const {
  std::vector<Incarnation> found;
  if (expired_.empty()) return found;
  for (const UpdateRecord& record : state.records) {
    const bool known = std::find(found.begin(), found.end(), record.client) != found.end();
    if (!known && expired_.contains(record.client)) found.push_back(record.client);
  }
  return found;
}

bool Replica::Start(Slot* slot, ForwardWork work, const std::optional<ChunkState>& state,
                    Effects* effects) {
  const Version version = work.update.version;
  // What a SYNCING replica held before is void, whatever its versions say.
  Version held = state ? state->version : Version{};
  if (sink_) {
    const auto received = sink_->received.find(work.update.chunk);
    held = received == sink_->received.end() ? Version{} : received->second;
  }
  if (version <= held) {
    effects->push_back(Acknowledge{work.token, Code::kOk, IsFull()});
    --updates_;
    return false;
  }
  InFlight& current = slot->current.emplace(InFlight());
  current.upstream_persisted = work.upstream_persisted;
  current.base_gone = work.update.kind == UpdateKind::kReplace;
  current.forwards = {work.token};
  current.update = std::make_shared<Update>(std::move(work.update));
  effects->push_back(Persist{current.update});
  return true;
}

bool Replica::StartCopy(Slot* slot, const ChunkId& chunk, const std::optional<ChunkState>& state,
                        Effects* effects) {
  if (!state) {  // forgotten since it was listed
    --source_->under_way;
    ContinueCopying(effects);
    return false;
  }
  auto update = std::make_shared<Update>();
  update->chunk = chunk;
  update->version = state->version;
  update->kind = UpdateKind::kReplace;
  InFlight& current = slot->current.emplace(InFlight());
  current.update = std::move(update);
  current.is_copy = current.persisted = current.upstream_persisted = true;
  return true;
}

// ---- Updates: through the slot

void Replica::OnUpstreamPersisted(ChainVersion chain_version, const ChunkId& chunk, Version version,
                                  Effects* effects) {
  const auto at = slots_.find(chunk);
  if (chain_version != chain_version_ || at == slots_.end()) return;
  Slot& slot = at->second;
  if (slot.current && slot.current->update->version == version) {
    slot.current->upstream_persisted = true;
    Advance(at, effects);
    return;
  }
  for (Work& work : slot.queue) {
    auto* forward = std::get_if<ForwardWork>(&work);
    if (forward != nullptr && forward->update.version == version) {
      forward->upstream_persisted = true;
    }
  }
}

void Replica::OnPersisted(const ChunkId& chunk, Version version, Code code, uint32_t length,
                          Effects* effects) {
  const auto at = slots_.find(chunk);
  if (at == slots_.end() || !at->second.current) return;
  InFlight& current = *at->second.current;
  if (current.update->version != version || current.persisted) return;
  if (code == Code::kOk) {
    current.persisted = true;
    current.length = length;
    if (current.doomed) {
      effects->push_back(Discard{chunk, version});
      Abort(at, code, effects);
    } else {
      Advance(at, effects);
    }
  } else if (current.doomed || code == Code::kCorrupt ||
             (is_head_ && !current.forwarded && code != Code::kUnavailable)) {
    // Nobody else has it: the data is not what was sent, or it was never forwarded.
    Abort(at, code, effects);
  } else {
    Abort(at, Code::kUnavailable, effects);
    Fail(code, effects);
  }
}

// Forgets the version under way and answers who waits for it.
void Replica::Abort(Slots::iterator at, Code code, Effects* effects) {
  const InFlight gone = std::move(*at->second.current);
  at->second.current.reset();
  --updates_;
  for (Token token : gone.clients) effects->push_back(Reply{token, code, {}, 0});
  for (Token token : gone.forwards) effects->push_back(Acknowledge{token, code, false});
  auto& queue = at->second.queue;
  if (gone.update->tag.client == 0 && !queue.empty() &&
      std::holds_alternative<ClientWork>(queue.front())) {  // the write that needed this cut
    AnswerWork(queue.front(), code, effects);
    queue.pop_front();
    --updates_;
  }
  StartNext(at, effects);
}

void Replica::Fail(Code code, Effects* effects) {
  role_ = Role::kNone;
  is_head_ = is_tail_ = false;
  successor_.reset();
  source_.reset();
  sink_.reset();
  LeaveChain(Code::kUnavailable, effects);
  ReconsiderReads(effects);
  effects->push_back(TargetFailed{code});
}

void Replica::OnAcknowledge(ChainVersion chain_version, const ChunkId& chunk, Version version,
                            Code code, bool full, Effects* effects) {
  if (chain_version != chain_version_ || !successor_) return;
  if (code == Code::kOk) downstream_full_ = full;
  const auto at = slots_.find(chunk);
  if (at == slots_.end() || !at->second.current) return;
  InFlight& current = *at->second.current;
  if (current.update->version != version || !current.forwarded) return;
  if (code != Code::kOk) {
    current.forwarded = current.persisted_sent = false;
    effects->push_back(RetryLater{});
    return;
  }
  current.acknowledged = true;
  Advance(at, effects);
}

void Replica::OnRetry(Effects* effects) {
  AdvanceAll(effects);
  ContinueCopying(effects);
  ContinueDropping(effects);
}

void Replica::AdvanceAll(Effects* effects) {
  for (auto at = slots_.begin(); at != slots_.end();) {
    const auto here = at++;
    if (here->second.current) Advance(here, effects);
  }
}

// Does whatever the version in the slot is ready for.
void Replica::Advance(Slots::iterator at, Effects* effects) {
  InFlight& current = *at->second.current;
  if (role_ == Role::kNone || current.doomed) return;
  if (successor_) SendDownstream(&current, effects);
  const bool downstream_done = successor_ ? current.acknowledged : current.upstream_persisted;
  if (current.persisted && downstream_done) Finish(at, effects);
}

void Replica::SendDownstream(InFlight* current, Effects* effects) {
  const Update& update = *current->update;
  const bool upstream_persisted = current->persisted && current->upstream_persisted;
  // A whole chunk is read back from the store, so it must be there first; and because the reading
  // takes time, a PERSISTED could overtake it.
  const bool whole = successor_syncing_ || update.kind == UpdateKind::kReplace;
  if (!current->forwarded && (upstream_persisted || !whole)) {
    if (whole) {
      effects->push_back(ForwardChunk{update.chunk, update.version, chain_version_});
    } else {
      effects->push_back(Forward{current->update, chain_version_, upstream_persisted});
    }
    current->forwarded = true;
    current->persisted_sent = upstream_persisted;
  }
  if (current->forwarded && upstream_persisted && !current->persisted_sent) {
    effects->push_back(SendPersisted{update.chunk, update.version, chain_version_});
    current->persisted_sent = true;
  }
}

void Replica::Finish(Slots::iterator at, Effects* effects) {
  const InFlight done = std::move(*at->second.current);
  at->second.current.reset();
  const Update& update = *done.update;
  if (done.is_copy) {
    --source_->under_way;
    ++source_->copied;
    StartNext(at, effects);
    ContinueCopying(effects);
    return;
  }
  --updates_;
  if (sink_) sink_->received[update.chunk] = update.version;
  effects->push_back(Commit{update.chunk, update.version});
  for (Token token : done.forwards) effects->push_back(Acknowledge{token, Code::kOk, IsFull()});
  for (Token token : done.clients) {
    effects->push_back(Reply{token, Code::kOk, update.version, done.length});
  }
  StartNext(at, effects);
}

void Replica::OnSpace(bool full, bool forget_downstream) {
  full_ = full;
  if (forget_downstream) downstream_full_ = false;
}

void Replica::OnClientExpired(Incarnation client) {
  if (expired_.size() >= kExpiredClientsMax) expired_.erase(expired_.begin());
  expired_.insert(client);
}

// ---- Full copy: the predecessor

void Replica::ContinueCopying(Effects* effects) {
  if (!source_ || source_->done) return;
  while (source_->under_way < limits_.copies_max && !source_->listed.empty()) {
    const ChunkId chunk = source_->listed.front();
    source_->listed.pop_front();
    ++source_->under_way;
    Enqueue(chunk, CopyWork{}, effects);
  }
  if (!source_->listed.empty() || source_->listing) return;
  if (!source_->all_listed) {
    source_->listing = true;
    effects->push_back(ListChunks{source_->after, chain_version_});
  } else if (source_->under_way == 0 && !source_->done_sent) {
    source_->done_sent = true;
    effects->push_back(SendSyncDone{chain_version_});
  }
}

void Replica::OnSyncDoneAnswer(ChainVersion chain_version, Code code, Effects* effects) {
  if (chain_version != chain_version_ || !source_ || !source_->done_sent) return;
  source_->done = code == Code::kOk;
  source_->done_sent = source_->done;
  if (!source_->done) effects->push_back(RetryLater{});
}

// ---- Full copy: the SYNCING replica

void Replica::OnSyncDone(Token token, ChainVersion chain_version, Effects* effects) {
  if (chain_version != chain_version_ || !sink_) {
    effects->push_back(Acknowledge{token, Code::kStaleRouting, false});
    return;
  }
  for (const auto& [chunk, slot] : slots_) {
    if (!slot.current || !slot.current->doomed) continue;
    effects->push_back(Acknowledge{token, Code::kBusy, false});  // it must be gone first
    return;
  }
  if (sink_->done_token) effects->push_back(Acknowledge{*sink_->done_token, Code::kBusy, false});
  sink_->done_token = token;
  sink_->all_listed = false;
  effects->push_back(ListChunks{std::nullopt, chain_version_});
}

void Replica::OnListed(ChainVersion chain_version, Code code, const std::vector<ChunkId>& chunks,
                       bool more, Effects* effects) {
  if (chain_version != chain_version_ || (!source_ && !sink_)) return;
  if (code != Code::kOk) {
    Fail(code, effects);
    return;
  }
  if (source_) {
    source_->listing = false;
    source_->all_listed = !more;
    source_->listed.insert(source_->listed.end(), chunks.begin(), chunks.end());
    if (!chunks.empty()) source_->after = chunks.back();
    ContinueCopying(effects);
    return;
  }
  for (const ChunkId& chunk : chunks) {
    if (sink_->received.contains(chunk) || slots_.contains(chunk)) continue;
    ++sink_->dropping;
    effects->push_back(DropChunk{chunk, chain_version_});
  }
  sink_->all_listed = !more;
  if (more) effects->push_back(ListChunks{chunks.back(), chain_version_});
  ContinueDropping(effects);
}

void Replica::OnDropped(ChainVersion chain_version, Code code, Effects* effects) {
  if (chain_version != chain_version_ || !sink_) return;
  --sink_->dropping;
  if (code != Code::kOk) {
    Fail(code, effects);
    return;
  }
  ContinueDropping(effects);
}

void Replica::ContinueDropping(Effects* effects) {
  if (!sink_ || !sink_->done_token || !sink_->all_listed || sink_->dropping > 0) return;
  effects->push_back(SyncFinished{*sink_->done_token, chain_version_});
  sink_->done_token.reset();
}

// ---- Reads

bool Replica::IsClean(ChainVersion chain_version, const ChunkId& chunk) const {
  if (chain_version != chain_version_ || role_ != Role::kServing) return false;
  if (slots_.empty()) return true;
  const auto at = slots_.find(chunk);
  if (at == slots_.end() || !at->second.current) return true;
  return is_tail_ && !at->second.current->base_gone;
}

void Replica::OnRead(Token token, ChainVersion chain_version, const ChunkId& chunk,
                     Effects* effects) {
  if (chain_version != chain_version_) {
    effects->push_back(RefuseRead{token, Code::kStaleRouting});
    return;
  }
  Decide(token, chunk, effects);
}

void Replica::Decide(Token token, const ChunkId& chunk, Effects* effects) {
  if (role_ != Role::kServing) {
    effects->push_back(RefuseRead{token, Code::kStaleRouting});
  } else if (IsClean(chain_version_, chunk)) {
    effects->push_back(ServeRead{token, std::nullopt});
  } else if (is_tail_) {
    effects->push_back(RefuseRead{token, Code::kUnavailable});  // the others have the base
  } else {
    asking_.emplace(token, chunk);
    effects->push_back(AskTail{token, chunk, chain_version_});
  }
}

void Replica::ReconsiderReads(Effects* effects) {
  const auto waiting = std::exchange(asking_, {});
  for (const auto& [token, chunk] : waiting) Decide(token, chunk, effects);
}

// The tail commits only what is persisted here, so what it names is the version under way or one
// committed here. Its answer was true at some moment since the read began; anything committed here
// since may be served as well.
void Replica::OnTailAnswer(Token token, Code code, Version committed, Effects* effects) {
  const auto found = asking_.find(token);
  if (found == asking_.end()) return;
  const auto at = slots_.find(found->second);
  asking_.erase(found);
  const InFlight* current =
      at != slots_.end() && at->second.current ? &*at->second.current : nullptr;
  if (code != Code::kOk) {
    effects->push_back(RefuseRead{token, code});
  } else if (current == nullptr || (committed < current->update->version && !current->base_gone)) {
    effects->push_back(ServeRead{token, std::nullopt});
  } else if (committed == current->update->version && current->persisted) {
    effects->push_back(ServeRead{token, committed});
  } else {
    effects->push_back(RefuseRead{token, Code::kUnavailable});  // the tail has it
  }
}

void Replica::CheckInvariants() const {
  size_t counted = 0;
  size_t copies = 0;
  for (const auto& [chunk, slot] : slots_) {
    for (const Work& work : slot.queue) {
      ++(std::holds_alternative<CopyWork>(work) ? copies : counted);
    }
    Require(slot.current || slot.loading, "a slot has something under way");
    if (!slot.current) continue;
    const InFlight& current = *slot.current;
    ++(current.is_copy ? copies : counted);
    Require(!current.persisted_sent || (current.persisted && current.upstream_persisted),
            "PERSISTED is sent after the own persist and the predecessor's PERSISTED");
    Require(!current.acknowledged || current.forwarded, "only what was sent is acknowledged");
    Require(current.clients.empty() || is_head_, "clients wait at the head only");
  }
  Require(counted == updates_, "the count of updates is exact");
  Require(source_ ? source_->under_way == copies : copies == 0, "the count of copies is exact");
  Require(role_ == Role::kServing || asking_.empty(), "only a serving replica asks the tail");
}

}  // namespace fs3::replica
