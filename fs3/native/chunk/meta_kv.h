// MetaKv: where the store keeps its records. Ordered keys, atomic batches, completion callbacks.
//
// Contract: operations take effect in call order; every callback runs exactly once, on the thread
// that uses the store, possibly before the call returns. A completed batch survives kill -9; a
// batch begun before a Sync survives power loss once that Sync has completed. After power loss
// the batches present are a prefix of those written.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fs3/native/base/status.h"
#include "fs3/native/loop/function.h"

namespace fs3 {

class MetaKv {
 public:
  using Done = Function<void(Status)>;
  using Pair = std::pair<std::string, std::string>;
  struct Mutation {
    std::string key;
    std::optional<std::string> value;  // none deletes
  };
  using Batch = std::vector<Mutation>;
  using GetDone = Function<void(Result<std::optional<std::string>>)>;
  using ScanDone = Function<void(Result<std::vector<Pair>>)>;

  virtual ~MetaKv() = default;
  virtual void Write(Batch batch, Done done) = 0;
  virtual void Sync(Done done) = 0;
  virtual void Get(std::string key, GetDone done) = 0;
  // Pairs with begin <= key < end, at most limit.
  virtual void Scan(std::string begin, std::string end, size_t limit, ScanDone done) = 0;
};

}  // namespace fs3
