// What the headers of .. call. Every call that can fault takes the line of the kernel's text that made it.
#pragma once
#include <cstdint>

#define MG_SITE int line = __builtin_LINE()  // last parameter of a device function: the line of its caller

namespace sim {

enum class Format { f16, bf16 };
enum class Path { read_only, coherent };  // a read-only load may return what a cache held before the launch wrote

int thread_index();
int block_index();
int block_count();
void barrier(int line);

uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, int table);
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector);
uint32_t fma_pair(Format format, uint32_t a, uint32_t b, uint32_t c);
float widen(Format format, uint32_t bits);
uint32_t narrow_pair(Format format, float low, float high);

uint32_t shared_base();
// op: name of the device function, for the report of bank conflicts.
void load_shared(const char* op, void* to, uint32_t address, int bytes, int line);
void store_shared(const char* op, const void* from, uint32_t address, int bytes, int line);
void copy_async(uint32_t shared, const void* global, bool read, int line);  // 16 bytes; zeros if they are not read
void commit_copies();
void wait_copies(int pending);

void load_matrix(uint32_t* to, uint32_t address, int blocks, int line);
void mma_m16n8k16(Format format, void* c, const void* a, const void* b, int line);  // 4 floats, 4 words, 2 words

void load_global(void* to, const void* from, int bytes, Path path, int line);
void store_global(void* to, const void* from, int bytes, int line);
void add_global(float* to, float value, int line);
void fence();
uint32_t increment(uint32_t* counter, uint32_t last, int line);
uint32_t acquire_value(const uint32_t* at, int line);
void wait_for_value(const uint32_t* at, uint32_t value, int line);
void release_value(uint32_t* at, uint32_t value, int line);

}  // namespace sim
