// The Python face of a module of kernels: addresses and sizes in, a launch on the current device out. Knows nothing of torch.
//
// What every call of a layer goes through is written against Python's C interface: pybind11 reads 21 integers more slowly, and
// takes seconds to compile such a signature.
#include <cuda_runtime.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "row.hpp"

namespace py = pybind11;

namespace {

// "rebuild for sm_90": the current device's architecture, where it can be asked.
std::string rebuild_hint() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return "rebuild for this GPU";
  }
  const std::string number = std::to_string(major) + std::to_string(minor);
  return "rebuild for sm_" + number + ": marlin-gen build --arch " + std::to_string(major) + "." + std::to_string(minor);
}

std::string hint(cudaError_t error, const Row& row) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion: return std::string("; it is built for ") + row.arch + ": " + rebuild_hint();
    case cudaErrorInsufficientDriver: return "; there is no NVIDIA driver here, or it is older than the CUDA version that built the module";
    case cudaErrorCooperativeLaunchTooLarge: return "; all CTAs of this kernel must run at once: use a smaller grid";
    default: return "";
  }
}

// Null with Python's exception set for a CUDA error; clears the error so that no later call reports it again.
PyObject* fail(cudaError_t error, const std::string& what, const std::string& hint) {
  cudaGetLastError();
  PyErr_SetString(PyExc_RuntimeError, (what + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error) + hint).c_str());
  return nullptr;
}

// Reads positional integers one after another. After the first that does not fit, `ok` is false, Python's exception is set, and
// the rest reads as 0.
class Integers {
 public:
  explicit Integers(PyObject* const* values) : next_(values) {}
  int64_t signed64() { return take(&PyLong_AsLongLong); }
  template <typename T> T* pointer() { return reinterpret_cast<T*>(take(&PyLong_AsUnsignedLongLong)); }
  int32_t signed32() {
    const int64_t value = signed64();
    if (value != static_cast<int32_t>(value)) {
      PyErr_Format(PyExc_OverflowError, "%lld does not fit in 32 bits", static_cast<long long>(value));
      ok = false;
    }
    return static_cast<int32_t>(value);
  }
  const Row* row() {
    const int64_t index = signed64();
    if (ok && index >= 0 && index < kRowCount) return &kRows[index];
    if (ok) PyErr_Format(PyExc_IndexError, "kernel index %lld is not in rows()", static_cast<long long>(index));
    ok = false;
    return nullptr;
  }
  bool ok = true;

 private:
  template <typename T> T take(T (*read)(PyObject*)) {
    PyObject* const object = *next_++;
    const T value = ok ? read(object) : T{};
    if (value == static_cast<T>(-1) && PyErr_Occurred()) ok = false;
    return ok ? value : T{};
  }
  PyObject* const* next_;
};

PyObject* launch(PyObject*, PyObject* const* values, Py_ssize_t count) {
  constexpr Py_ssize_t kArguments = 21;
  if (count != kArguments) return PyErr_Format(PyExc_TypeError, "launch takes %zd integers, not %zd", kArguments, count);
  Integers in(values);
  const Row* row = in.row();
  GemmParams p{};
  p.a = in.pointer<void>();
  p.b = in.pointer<void>();
  p.scales = in.pointer<void>();
  p.zeros = in.pointer<void>();
  p.bias = in.pointer<void>();
  p.c = in.pointer<void>();
  p.partial = in.pointer<float>();
  p.counters = in.pointer<uint32_t>();
  p.lda = in.signed64();
  p.ldc = in.signed64();
  p.m = in.signed32();
  p.n = in.signed32();
  p.k = in.signed32();
  p.n_pad = in.signed32();
  p.k_tiles = in.signed32();
  p.n_tiles = in.signed32();
  p.columns = in.signed32();
  p.stripe = in.signed32();
  const int grid = in.signed32();
  const auto stream = in.pointer<CUstream_st>();
  if (!in.ok) return nullptr;
  cudaError_t error;
  Py_BEGIN_ALLOW_THREADS  // a full launch queue blocks
  error = row->launch(&p, grid, stream);
  Py_END_ALLOW_THREADS
  if (error != cudaSuccess) return fail(error, std::string("launch of ") + row->name, hint(error, *row));
  Py_RETURN_NONE;
}

PyObject* occupancy(PyObject*, PyObject* index) {
  const Row* row = Integers(&index).row();
  if (row == nullptr) return nullptr;
  int ctas = 0;
  const cudaError_t error = row->occupancy(&ctas);
  if (error != cudaSuccess) return fail(error, std::string("occupancy of ") + row->name, hint(error, *row));
  return PyLong_FromLong(ctas);
}

PyObject* capture_id(PyObject*, PyObject* value) {
  Integers in(&value);
  const auto stream = in.pointer<CUstream_st>();
  if (!in.ok) return nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id);
  if (error != cudaSuccess) return fail(error, "capture state of a stream", "");
  return PyLong_FromUnsignedLongLong(status == cudaStreamCaptureStatusActive ? id : 0);
}

PyMethodDef kFunctions[] = {
    {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&launch)), METH_FASTCALL,
     "launch(index, a, b, scales, zeros, bias, c, partial, counters, lda, ldc, m, n, k, n_pad, k_tiles, n_tiles, columns, stripe,\n"
     "       grid, stream, /)\n--\n\n"
     "Enqueue a kernel on a stream of the current device. Raises RuntimeError with CUDA's error."},
    {"occupancy", &occupancy, METH_O, "occupancy(index, /)\n--\n\nCTAs of a kernel that fit on an SM of the current device."},
    {"capture_id", &capture_id, METH_O,
     "capture_id(stream, /)\n--\n\nId of the CUDA graph capture under way on a stream; 0 outside capture."},
    {nullptr, nullptr, 0, nullptr},
};

py::list rows(const py::object& type) {
  py::list list;
  for (const Row* row = kRows; row != kRows + kRowCount; ++row) {
    list.append(type(row->name, row->arch, row->threads, row->shared_bytes, row->m_tile, row->thread_n, row->thread_k));
  }
  return list;
}

}  // namespace

PYBIND11_MODULE(marlin_gen_kernels, m) {
  m.doc() = "Kernels compiled by marlin-gen. Addresses are device pointers as integers; see templates/device/params.cuh.";
  const py::object type = py::module_::import("collections").attr("namedtuple")(
      "Row", "name arch threads shared_bytes m_tile thread_n thread_k");
  m.def("rows", [type] { return rows(type); }, "All kernels, sorted by name; the place of a row is its index.");
  if (PyModule_AddFunctions(m.ptr(), kFunctions) != 0) throw py::error_already_set();
}
