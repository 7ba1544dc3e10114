#pragma once

#include <nanobind/nanobind.h>

namespace fs3::bind {

// Holds a contiguous buffer view for the length of a call.
class BufferView {
 public:
  explicit BufferView(nanobind::handle object, int flags = PyBUF_SIMPLE) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  void* mutable_data() const { return view_.buf; }
  const void* data() const { return view_.buf; }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

}  // namespace fs3::bind
