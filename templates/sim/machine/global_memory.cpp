#include "global_memory.hpp"

#include <algorithm>
#include <cstring>

#include "machine.hpp"

namespace sim {

void Known::merge(const Known& other) {
  all = std::max(all, other.all);
  own.resize(std::max(own.size(), other.own.size()));
  for (size_t i = 0; i < other.own.size(); ++i) own[i] = std::max(own[i], other.own[i]);
}

void merge(KnownByCta& into, const KnownByCta& from) {
  for (const auto& [cta, known] : from) into[cta].merge(known);
}

GlobalMemory::GlobalMemory(const Launch& launch) {
  for (int i = 0; i < launch.buffer_count; ++i) {
    const Buffer& buffer = launch.buffers[i];
    const bool tracked = buffer.flags & kWritable || !(buffer.flags & kInitialised);
    buffers_.push_back({&buffer, std::vector<int>(tracked ? (buffer.bytes + kGranule - 1) / kGranule : 0, -1)});
  }
}

// Where an access lies; an empty place after reporting one that is not allowed.
GlobalMemory::Place GlobalMemory::find(const Thread& thread, const void* pointer, int bytes, int needs, int line) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  const int index = static_cast<int>(address >> kBufferShift) - 1;
  if (index < 0 || index >= static_cast<int>(buffers_.size())) {
    machine->fault(thread, "out of range", line, "%d bytes of global memory at address 0x%llx, in no buffer%s", bytes,
                   static_cast<unsigned long long>(address), address < 4096 ? " (a null pointer)" : "");
    return {};
  }
  State& state = buffers_[index];
  const Buffer& buffer = *state.buffer;
  const int64_t offset = static_cast<int64_t>(address - device_address(index));
  if (offset < 0 || offset + bytes > buffer.bytes) {
    machine->fault(thread, "out of range", line, "%d bytes of %s at byte offset %lld; it has %lld bytes", bytes, buffer.name,
                   static_cast<long long>(offset), static_cast<long long>(buffer.bytes));
    return {};
  }
  if (offset % bytes) {
    machine->fault(thread, "misaligned", line, "%s at byte offset %lld, which is not a multiple of %d", buffer.name,
                   static_cast<long long>(offset), bytes);
    return {};
  }
  for (int64_t i = offset / kGranule; buffer.allowed && i * kGranule < offset + bytes; ++i) {
    if (buffer.allowed[i]) continue;
    machine->fault(thread, "out of range", line, "%s at byte offset %lld, outside the matrix (between its rows)", buffer.name,
                   static_cast<long long>(i * kGranule));
    return {};
  }
  if (needs & ~buffer.flags) {
    machine->fault(thread, "access mode", line, "%s is %s by a kernel", buffer.name, needs & kWritable ? "never written" : "never read");
    return {};
  }
  return {&state, offset};
}

bool GlobalMemory::knows(const Thread& thread, const Write& write) const {
  if (write.cta == thread.cta->index) return write.thread == thread.index || write.time < thread.cta->order.barrier;
  const auto covers = [&](const KnownByCta& known) {
    const auto found = known.find(write.cta);
    if (found == known.end()) return false;
    const Known& k = found->second;
    return write.time < k.all || (write.thread < static_cast<int>(k.own.size()) && write.time < k.own[write.thread]);
  };
  return covers(thread.cta->order.known) || covers(thread.order.known);
}

bool GlobalMemory::check_known(const Thread& thread, int index, const Place& place, const char* kind, const char* what, int line) {
  for (; index >= 0; index = writes_[index].before) {
    const Write& write = writes_[index];
    if (knows(thread, write)) continue;
    const bool same = write.cta == thread.cta->index;
    machine->fault(thread, same ? "missing barrier" : kind, line, "%s %s at byte offset %lld, written by thread %d of CTA %d in line %d: %s",
                   what, place.state->buffer->name, static_cast<long long>(place.offset), write.thread, write.cta, write.line,
                   same ? "no barrier in between"
                        : "there is no fence_gpu after the write, then an atomic (or a turn passed) that this CTA has seen, then a "
                          "fence_gpu or barrier here");
    return false;
  }
  return true;
}

void GlobalMemory::load(Thread& thread, void* to, const void* from, int bytes, Path path, int line) {
  std::memset(to, 0xff, bytes);
  const Place place = find(thread, from, bytes, kReadable, line);
  if (!place.state) return;
  ++machine->stats().global_loads;
  const auto& last = place.state->last;
  const Buffer& buffer = *place.state->buffer;
  for (int64_t i = place.offset / kGranule; !last.empty() && i * kGranule < place.offset + bytes; ++i) {
    if (last[i] < 0) {
      if (buffer.flags & kInitialised) continue;
      machine->fault(thread, "uninitialised read", line, "read of %s at byte offset %lld, which nothing wrote", buffer.name,
                     static_cast<long long>(i * kGranule));
      return;
    }
    if (path == Path::read_only) {
      machine->fault(thread, "stale read", line, "read-only load of %s at byte offset %lld, which this launch wrote in line %d", buffer.name,
                     static_cast<long long>(i * kGranule), writes_[last[i]].line);
      return;
    }
    if (!check_known(thread, last[i], place, "missing fence", "read of", line)) return;
  }
  std::memcpy(to, buffer.host + place.offset, bytes);
}

void GlobalMemory::mark(const Place& place, int bytes, int write) {
  for (int64_t i = place.offset / kGranule; i * kGranule < place.offset + bytes; ++i) {
    place.state->last[i] = write;
    place.state->buffer->written[i] = 1;
  }
}

void GlobalMemory::store(Thread& thread, void* to, const void* from, int bytes, int line) {
  const Place place = find(thread, to, bytes, kWritable, line);
  if (!place.state) return;
  ++machine->stats().global_stores;
  const Buffer& buffer = *place.state->buffer;
  for (int64_t i = place.offset / kGranule; i * kGranule < place.offset + bytes; ++i) {
    const int last = place.state->last[i];
    if (last < 0) continue;
    if (buffer.flags & kWriteOnce) {
      const Write& write = writes_[last];
      machine->fault(thread, "doubled output", line, "second write to %s at byte offset %lld; the first was by thread %d of CTA %d in line %d",
                     buffer.name, static_cast<long long>(i * kGranule), write.thread, write.cta, write.line);
      break;
    }
    if (!check_known(thread, last, place, "unordered write", "write to", line)) break;
  }
  writes_.push_back({thread.cta->index, thread.index, line, ++time_, -1});
  mark(place, bytes, static_cast<int>(writes_.size()) - 1);
  std::memcpy(buffer.host + place.offset, from, bytes);
}

void GlobalMemory::add(Thread& thread, float* to, float value, int line) {
  const Place place = find(thread, to, sizeof value, kReadable | kWritable, line);
  if (!place.state) return;
  ++machine->stats().global_stores;
  const int last = place.state->last[place.offset / kGranule];
  if (last < 0 && !(place.state->buffer->flags & kInitialised)) {
    machine->fault(thread, "uninitialised read", line, "addition to %s at byte offset %lld, which nothing wrote", place.state->buffer->name,
                   static_cast<long long>(place.offset));
  }
  float sum;
  unsigned char* host = place.state->buffer->host + place.offset;
  std::memcpy(&sum, host, sizeof sum);
  sum += value;
  std::memcpy(host, &sum, sizeof sum);
  writes_.push_back({thread.cta->index, thread.index, line, ++time_, last});
  mark(place, sizeof value, static_cast<int>(writes_.size()) - 1);
}

uint32_t* GlobalMemory::atomic(Thread& thread, const void* at, bool write, int line) {
  const Place place = find(thread, at, sizeof(uint32_t), kReadable | (write ? kWritable : 0), line);
  return place.state ? reinterpret_cast<uint32_t*>(place.state->buffer->host + place.offset) : nullptr;
}

void GlobalMemory::fence(Thread& thread) {
  thread.order.fence = ++time_;
  thread.order.fenced_barrier = thread.cta->order.barrier;
  merge(thread.order.known, thread.order.observed);
}

void GlobalMemory::release(Thread& thread, const void* at) {
  Known mine = thread.cta->order.published;
  mine.all = std::max(mine.all, thread.order.fenced_barrier);
  mine.own.resize(thread.cta->threads.size());
  mine.own[thread.index] = std::max(mine.own[thread.index], thread.order.fence);
  KnownByCta& released = released_[at];
  released[thread.cta->index].merge(mine);
  merge(released, thread.cta->order.known);
  merge(released, thread.order.known);
}

void GlobalMemory::acquire(Thread& thread, const void* at) {
  if (const auto found = released_.find(at); found != released_.end()) merge(thread.order.observed, found->second);
}

void GlobalMemory::pass_barrier(Cta& cta) {
  CtaOrder& order = cta.order;
  order.barrier = ++time_;
  order.published.own.resize(cta.threads.size());
  for (Thread& thread : cta.threads) {
    order.published.all = std::max(order.published.all, thread.order.fenced_barrier);
    order.published.own[thread.index] = thread.order.fence;
    merge(order.known, thread.order.observed);
    merge(order.known, thread.order.known);
    thread.order.observed.clear();
    thread.order.known.clear();
  }
}

}  // namespace sim

using sim::machine;

void sim::load_global(void* to, const void* from, int bytes, Path path, int line) {
  machine->count_step();
  machine->global().load(machine->thread(), to, from, bytes, path, line);
}

void sim::store_global(void* to, const void* from, int bytes, int line) {
  machine->count_step();
  machine->global().store(machine->thread(), to, from, bytes, line);
}

void sim::add_global(float* to, float value, int line) {
  machine->count_step();
  machine->global().add(machine->thread(), to, value, line);
}

void sim::fence() { machine->global().fence(machine->thread()); }

uint32_t sim::increment(uint32_t* counter, uint32_t last, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  uint32_t* value = machine->global().atomic(thread, counter, true, line);
  if (!value) return 0;
  machine->global().acquire(thread, counter);
  machine->global().release(thread, counter);
  const uint32_t before = *value;
  *value = before >= last ? 0 : before + 1;
  return before;
}

uint32_t sim::acquire_value(const uint32_t* at, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  const uint32_t* host = machine->global().atomic(thread, at, false, line);
  if (!host) return 0;
  machine->global().acquire(thread, at);
  merge(thread.order.known, thread.order.observed);  // an acquire: it needs no fence
  return *host;
}

void sim::wait_for_value(const uint32_t* at, uint32_t value, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  const uint32_t* host = machine->global().atomic(thread, at, false, line);
  if (!host) return;
  if (*host != value) {
    thread.turn_at = host;
    thread.turn_value = value;
    machine->wait(State::turn, line);
  }
  machine->global().acquire(thread, at);
  merge(thread.order.known, thread.order.observed);  // an acquire: it needs no fence
}

void sim::release_value(uint32_t* at, uint32_t value, int line) {
  machine->count_step();
  Thread& thread = machine->thread();
  uint32_t* host = machine->global().atomic(thread, at, true, line);
  if (!host) return;
  machine->global().fence(thread);  // a release orders what came before it by itself
  machine->global().release(thread, at);
  *host = value;
}
