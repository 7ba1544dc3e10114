// One function per binding file; module.cpp calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace fs3::bind {

void BindChecksum(nanobind::module_& m);
void BindChunkStore(nanobind::module_& m);
void BindClient(nanobind::module_& m);
void BindError(nanobind::module_& m);
void BindFrame(nanobind::module_& m);
void BindReplica(nanobind::module_& m);
void BindRocksDb(nanobind::module_& m);
void BindRpc(nanobind::module_& m);
void BindServer(nanobind::module_& m);

}  // namespace fs3::bind
