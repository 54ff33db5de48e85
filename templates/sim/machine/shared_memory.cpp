#include "shared_memory.hpp"

#include <cstring>

#include "machine.hpp"

namespace sim {

// The states of an access's bytes; null after reporting one that is misaligned or out of range.
SharedMemory::Cell* SharedMemory::find(const Thread& thread, uint32_t address, int bytes, int line) {
  const int64_t offset = static_cast<int64_t>(address) - kSharedBase;
  if (offset < 0 || offset + bytes > static_cast<int64_t>(data_.size())) {
    machine->fault(thread, "out of range", line, "%d bytes of shared memory at offset %lld, outside the %zu bytes of the launch", bytes,
                   static_cast<long long>(offset), data_.size());
    return nullptr;
  }
  if (offset % bytes) {
    machine->fault(thread, "misaligned", line, "%d bytes of shared memory at offset %lld, which is not a multiple of %d", bytes,
                   static_cast<long long>(offset), bytes);
    return nullptr;
  }
  return &state_[offset / kGranule];
}

bool SharedMemory::may_read(const Cell& cell, const Thread& thread, uint32_t address, int line) {
  const uint32_t offset = address - kSharedBase;
  if (cell.copy_line) {
    machine->fault(thread, "read in flight", line, "read of bytes that an asynchronous copy still owns: shared offset %u, copy of thread %d in "
                   "line %d, whose group that thread has not waited for", offset, cell.copier, cell.copy_line);
    return false;
  }
  if (!cell.write_line) {
    machine->fault(thread, "uninitialised read", line, "read of shared offset %u, which nothing wrote", offset);
    return false;
  }
  if (cell.writer != thread.index && cell.write_epoch == thread.cta->epoch) {
    machine->fault(thread, "missing barrier", line, "read of shared offset %u, written by thread %d in line %d with no barrier in between",
                   offset, cell.writer, cell.write_line);
    return false;
  }
  return true;
}

bool SharedMemory::may_write(const Cell& cell, const Thread& thread, uint32_t address, int line) {
  const uint32_t offset = address - kSharedBase;
  if (cell.copy_line) {
    machine->fault(thread, "write in flight", line, "write to bytes that an asynchronous copy still owns: shared offset %u, copy of thread %d "
                   "in line %d, whose group that thread has not waited for", offset, cell.copier, cell.copy_line);
    return false;
  }
  const int epoch = thread.cta->epoch;
  if (cell.read_line && cell.read_epoch == epoch && (cell.many_readers || cell.reader != thread.index)) {
    machine->fault(thread, "missing barrier", line, "write to shared offset %u, read by thread %d%s in line %d with no barrier in between",
                   offset, cell.reader, cell.many_readers ? " and others" : "", cell.read_line);
    return false;
  }
  if (cell.write_line && cell.write_epoch == epoch && cell.writer != thread.index) {
    machine->fault(thread, "missing barrier", line, "write to shared offset %u, written by thread %d in line %d with no barrier in between",
                   offset, cell.writer, cell.write_line);
    return false;
  }
  return true;
}

void SharedMemory::load(Thread& thread, void* to, uint32_t address, int bytes, int line) {
  std::memset(to, 0xff, bytes);
  Cell* cells = find(thread, address, bytes, line);
  if (!cells) return;
  bool good = true;
  const int epoch = thread.cta->epoch;
  for (int i = 0; i < bytes / kGranule; ++i) {
    Cell& cell = cells[i];
    good = good && may_read(cell, thread, address + i * kGranule, line);
    const bool first = !cell.read_line || cell.read_epoch != epoch;
    if (first) cell.many_readers = false;
    else if (cell.reader != thread.index) cell.many_readers = true;
    if (first) cell.reader = static_cast<int16_t>(thread.index);
    cell.read_epoch = epoch;
    cell.read_line = line;
  }
  if (good) std::memcpy(to, &data_[address - kSharedBase], bytes);
}

void SharedMemory::store(Thread& thread, const void* from, uint32_t address, int bytes, int line) {
  Cell* cells = find(thread, address, bytes, line);
  if (!cells) return;
  bool good = true;
  for (int i = 0; i < bytes / kGranule; ++i) {
    good = good && may_write(cells[i], thread, address + i * kGranule, line);
    cells[i].write_line = line;
    cells[i].write_epoch = thread.cta->epoch;
    cells[i].writer = static_cast<int16_t>(thread.index);
  }
  std::memcpy(&data_[address - kSharedBase], from, bytes);
}

void SharedMemory::begin_copy(Thread& thread, const AsyncCopy& copy) {
  Cell* cells = find(thread, copy.address, sizeof copy.data, copy.line);
  if (!cells) return;
  bool good = true;
  for (size_t i = 0; i < sizeof copy.data / kGranule; ++i) {
    good = good && may_write(cells[i], thread, copy.address + i * kGranule, copy.line);
    cells[i].copy_line = copy.line;
    cells[i].copier = static_cast<int16_t>(thread.index);
  }
  std::memset(&data_[copy.address - kSharedBase], 0xff, sizeof copy.data);
}

void SharedMemory::land_copy(Thread& thread, const AsyncCopy& copy) {
  const uint32_t offset = copy.address - kSharedBase;
  if (copy.address < kSharedBase || offset + sizeof copy.data > data_.size() || offset % sizeof copy.data) return;  // reported
  for (size_t i = 0; i < sizeof copy.data / kGranule; ++i) {
    Cell& cell = state_[offset / kGranule + i];
    cell.copy_line = 0;
    cell.write_line = copy.line;
    cell.write_epoch = thread.cta->epoch;
    cell.writer = static_cast<int16_t>(thread.index);
  }
  std::memcpy(&data_[offset], copy.data, sizeof copy.data);
}

}  // namespace sim

using sim::machine;

uint32_t sim::shared_base() { return kSharedBase; }

void sim::load_shared(const char* op, void* to, uint32_t address, int bytes, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  thread.warp->banks.record(op, line, thread.lane, address, bytes);
  thread.cta->shared.load(thread, to, address, bytes, line);
}

void sim::store_shared(const char* op, const void* from, uint32_t address, int bytes, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  thread.warp->banks.record(op, line, thread.lane, address, bytes);
  thread.cta->shared.store(thread, from, address, bytes, line);
}

void sim::copy_async(uint32_t shared, const void* global, bool read, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  AsyncCopy copy{thread.open_group, line, shared, {}};
  if (read) machine->global().load(thread, copy.data, global, sizeof copy.data, Path::coherent, line);
  thread.warp->banks.record("cp_async16", line, thread.lane, shared, 16);
  thread.cta->shared.begin_copy(thread, copy);
  thread.copies.push_back(copy);
  ++machine->stats().async_copies;
}

void sim::commit_copies() { ++machine->thread().open_group; }

void sim::wait_copies(int pending) {
  machine->count_step();
  Thread& thread = machine->thread();
  auto& copies = thread.copies;
  for (; !copies.empty() && copies.front().group < thread.open_group - pending; copies.pop_front()) {
    thread.cta->shared.land_copy(thread, copies.front());
  }
}
