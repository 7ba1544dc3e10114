// What the shards of a storage server did. One writer each; read from anywhere.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fs3/native/net/counters.h"

namespace fs3 {

struct ServerCounters {
  Counter reads;
  Counter read_bytes;
  Counter tail_queries;  // reads of chunks with an update under way
  Counter writes;
  Counter written_bytes;
  Counter forwards;
  Counter forwarded_bytes;
  Counter copied_chunks;  // sent whole to a SYNCING successor
  Counter refused_busy;
  Counter malformed_requests;
  Counter corrupt_data;  // updates whose data did not match its checksum

  template <typename Visit>
  void ForEach(Visit visit) const {
    visit("reads", reads);
    visit("read_bytes", read_bytes);
    visit("tail_queries", tail_queries);
    visit("writes", writes);
    visit("written_bytes", written_bytes);
    visit("forwards", forwards);
    visit("forwarded_bytes", forwarded_bytes);
    visit("copied_chunks", copied_chunks);
    visit("refused_busy", refused_busy);
    visit("malformed_requests", malformed_requests);
    visit("corrupt_data", corrupt_data);
  }
};

}  // namespace fs3
