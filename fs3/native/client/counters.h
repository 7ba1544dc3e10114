// What an IO client did. Written on its loop's thread, read from anywhere.
#pragma once

#include "fs3/native/net/counters.h"

namespace fs3 {

struct ClientCounters {
  Counter reads;  // chunk operations
  Counter writes;
  Counter read_bytes;
  Counter written_bytes;
  Counter frames;
  Counter retried_ops;   // operations that were sent more than once because one failed
  Counter hedged_reads;  // sent to a second replica because the first was slow
  Counter corrupt_replies;
  Counter failed_ops;

  template <typename Visit>
  void ForEach(Visit visit) const {
    visit("reads", reads);
    visit("writes", writes);
    visit("read_bytes", read_bytes);
    visit("written_bytes", written_bytes);
    visit("frames", frames);
    visit("retried_ops", retried_ops);
    visit("hedged_reads", hedged_reads);
    visit("corrupt_replies", corrupt_replies);
    visit("failed_ops", failed_ops);
  }
};

}  // namespace fs3
