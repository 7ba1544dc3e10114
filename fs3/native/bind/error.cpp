#include "fs3/native/bind/error.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "fs3/native/bind/bind.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

void Translate(const std::exception_ptr& pointer, void* type) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StatusException& e) {
    const nb::tuple args =
        nb::make_tuple(static_cast<uint32_t>(e.status().code()), e.status().message());
    PyErr_SetObject(static_cast<PyObject*>(type), args.ptr());
  }
}

nb::object Argument(nb::handle self, int index) { return nb::object(self.attr("args")[index]); }

}  // namespace

void BindError(nb::module_& m) {
  PyObject* type = PyErr_NewExceptionWithDoc(
      "fs3._native.NativeError",
      "A failed native call: `code` is a number of fs3.errors, `message` one line with the remedy.",
      PyExc_Exception, nullptr);
  if (type == nullptr) nb::raise_python_error();
  m.attr("NativeError") = nb::borrow(type);
  const nb::object property = nb::module_::import_("builtins").attr("property");
  nb::setattr(type, "code",
              property(nb::cpp_function([](nb::handle self) { return Argument(self, 0); })));
  nb::setattr(type, "message",
              property(nb::cpp_function([](nb::handle self) { return Argument(self, 1); })));
  nb::cpp_function_def([](nb::handle self) { return Argument(self, 1); }, nb::scope(type),
                       nb::name("__str__"), nb::is_method());
  nb::register_exception_translator(&Translate, type);  // keeps the reference for the process
}

}  // namespace fs3::bind
