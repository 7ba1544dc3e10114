// What the replica machine orders its shell to do, to be carried out in the order given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/replica/update.h"

namespace fs3::replica {

// Names a request that waits for an answer; chosen by the shell, never reused while it waits.
using Token = uint64_t;

// Look up the committed state of the chunk; OnLoaded follows.
struct LoadChunk {
  ChunkId chunk;
};

// Look up chunk ids after `after` (from the first if none), in order and with tombstones; OnListed
// follows.
struct ListChunks {
  std::optional<ChunkId> after;
  ChainVersion chain_version = 0;
};

// Store this version beside the committed one; OnPersisted follows. A kReplace takes the place of
// every version held, newer ones too.
struct Persist {
  std::shared_ptr<const Update> update;
};

// The persisted version is the chunk's committed one from now on.
struct Commit {
  ChunkId chunk;
  Version version;
};

// Forget a persisted, uncommitted version.
struct Discard {
  ChunkId chunk;
  Version version;
};

// Send the update to the successor; OnAcknowledge follows. `upstream_persisted` saves the PERSISTED
// message.
struct Forward {
  std::shared_ptr<const Update> update;
  ChainVersion chain_version = 0;
  bool upstream_persisted = false;
};

// The same with the whole chunk as of `version`, read from the store: what a SYNCING successor
// gets, and what is left of an update whose data was not kept. Upstream has persisted it.
struct ForwardChunk {
  ChunkId chunk;
  Version version;
  ChainVersion chain_version = 0;
};

// Tell the successor that this replica and all before it have persisted the version.
struct SendPersisted {
  ChunkId chunk;
  Version version;
  ChainVersion chain_version = 0;
};

// Answer the predecessor. `full`: this replica or one after it is short of space.
struct Acknowledge {
  Token token = 0;
  Code code = Code::kOk;
  bool full = false;
};

// Answer a client's update.
struct Reply {
  Token token = 0;
  Code code = Code::kOk;
  Version version;
  uint32_t length = 0;  // of the chunk
};

// Ask the tail which version of the chunk is committed; OnTailAnswer follows.
struct AskTail {
  Token token = 0;
  ChunkId chunk;
  ChainVersion chain_version = 0;
};

// Serve the read from this version: the committed one if there is none.
struct ServeRead {
  Token token = 0;
  std::optional<Version> version;
};

struct RefuseRead {
  Token token = 0;
  Code code = Code::kOk;
};

// Call OnRetry after a pause: something sent to the successor came back refused or lost.
struct RetryLater {};

// Tell the successor that it has a copy of every chunk; OnSyncDoneAnswer follows.
struct SendSyncDone {
  ChainVersion chain_version = 0;
};

// Remove a chunk that the predecessor does not have, with all its versions; OnDropped follows.
struct DropChunk {
  ChunkId chunk;
  ChainVersion chain_version = 0;
};

// This SYNCING replica holds all that its predecessor holds: answer its SYNC_DONE and tell the
// manager.
struct SyncFinished {
  Token token = 0;
  ChainVersion chain_version = 0;
};

// The store failed; this replica serves nothing until it is given a chain again.
struct TargetFailed {
  Code code = Code::kInternal;
};

using Effect = std::variant<LoadChunk, ListChunks, Persist, Commit, Discard, Forward, ForwardChunk,
                            SendPersisted, Acknowledge, Reply, AskTail, ServeRead, RefuseRead,
                            RetryLater, SendSyncDone, DropChunk, SyncFinished, TargetFailed>;
using Effects = std::vector<Effect>;

}  // namespace fs3::replica
