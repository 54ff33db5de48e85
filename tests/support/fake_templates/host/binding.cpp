// For builds without CUDA: a module with rows() and occupancy() alone, quick to compile.
#include <Python.h>

#include "row.hpp"

static PyObject* rows(PyObject*, PyObject*) {
  PyObject* type = PyObject_CallMethod(
      PyImport_ImportModule("collections"), "namedtuple", "ss", "Row", "name arch threads shared_bytes m_tile thread_n thread_k");
  PyObject* list = PyList_New(0);
  for (const Row* r = kRows; r != kRows + kRowCount; ++r) {
    PyList_Append(list, PyObject_CallFunction(
        type, "ssiiiii", r->name, r->arch, r->threads, r->shared_bytes, r->m_tile, r->thread_n, r->thread_k));
  }
  return list;
}
static PyObject* launch(PyObject*, PyObject* values) {
  return PyLong_FromLong(kRows[PyLong_AsLong(PyTuple_GetItem(values, 0))].launch(nullptr, 0, nullptr));
}
static PyObject* occupancy(PyObject*, PyObject* index) {
  int ctas = 0;
  kRows[PyLong_AsLong(index)].occupancy(&ctas);
  return PyLong_FromLong(ctas);
}
static PyObject* capture_id(PyObject*, PyObject*) { return PyLong_FromLong(0); }
static PyMethodDef kFunctions[] = {
    {"rows", rows, METH_NOARGS, nullptr}, {"launch", launch, METH_VARARGS, nullptr}, {"occupancy", occupancy, METH_O, nullptr},
    {"capture_id", capture_id, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "marlin_gen_kernels", nullptr, 0, kFunctions, nullptr, nullptr, nullptr, nullptr};
extern "C" __attribute__((visibility("default"))) PyObject* PyInit_marlin_gen_kernels() { return PyModule_Create(&kModule); }
