// The one native extension: fs3._native. Each file of this folder binds one concept.
#include <nanobind/nanobind.h>

#include "fs3/native/bind/bind.h"

NB_MODULE(_native, m) {
  // At exit the interpreter keeps what globals hold; that is not news.
  nanobind::set_leak_warnings(false);
  // First: every other file raises NativeError.
  fs3::bind::BindError(m);
  fs3::bind::BindChecksum(m);
  fs3::bind::BindClient(m);
  fs3::bind::BindServer(m);
  fs3::bind::BindReplica(m);
  fs3::bind::BindRocksDb(m);
  fs3::bind::BindChunkStore(m);
  fs3::bind::BindFrame(m);
  fs3::bind::BindRpc(m);
}
