// Collectives of a warp: ldmatrix and mma.
#include <cstring>

#include "machine.hpp"

namespace sim {
namespace {

struct MatrixLoad {
  uint32_t address;
  uint32_t* to;
};

struct MmaOperands {
  float* c;
  const uint32_t *a, *b;
};

// Half h of a word.
float element(Format format, uint32_t word, int h) { return widen(format, h ? word >> 16 : word & 0xffffu); }

}  // namespace

void load_matrix(uint32_t* to, uint32_t address, int blocks, int line) {
  MatrixLoad mine{address, to};
  Warp* warp = machine->meet(blocks == 4 ? "ldmatrix_x4" : "ldmatrix_x2", &mine, line);
  if (!warp) return;
  ++machine->stats().ldmatrix;
  const auto lane_load = [&](int lane) { return static_cast<MatrixLoad*>(warp->operands[lane]); };
  Thread* lanes = &machine->thread() - machine->thread().lane;
  BankUse& use = machine->banks()[{line, warp->collective}];
  uint32_t rows[kWarp] = {}, present = 0;
  for (int lane = 0; lane < 8 * blocks; ++lane) {
    rows[lane] = lane_load(lane)->address;
    present |= 1u << lane;
  }
  count_wavefronts(use, rows, present, 16);
  for (int block = 0; block < blocks; ++block) {
    uint16_t element[8][8];
    for (int row = 0; row < 8; ++row) {
      const int lane = block * 8 + row;
      machine->cta().shared.load(lanes[lane], element[row], rows[lane], 16, line);
    }
    for (int lane = 0; lane < kWarp; ++lane) std::memcpy(&lane_load(lane)->to[block], &element[lane / 4][lane % 4 * 2], 4);
  }
  machine->leave(*warp);
}

// Products of 16-bit floats are exact in double. The sum is rounded to float once; hardware may cut low bits of the smaller terms.
void mma_m16n8k16(Format format, void* c, const void* a, const void* b, int line) {
  MmaOperands mine{static_cast<float*>(c), static_cast<const uint32_t*>(a), static_cast<const uint32_t*>(b)};
  Warp* warp = machine->meet("mma", &mine, line);
  if (!warp) return;
  ++machine->stats().mma;
  double left[16][16], right[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto* operands = static_cast<const MmaOperands*>(warp->operands[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int h = 0; h < 2; ++h) {
      for (int r = 0; r < 4; ++r) left[g + 8 * (r & 1)][2 * t + h + 8 * (r >> 1)] = element(format, operands->a[r], h);
      for (int r = 0; r < 2; ++r) right[2 * t + h + 8 * r][g] = element(format, operands->b[r], h);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* result = static_cast<const MmaOperands*>(warp->operands[lane])->c;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i >> 1), column = 2 * (lane % 4) + (i & 1);
      double sum = result[i];
      for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
      result[i] = static_cast<float>(sum);
    }
  }
  machine->leave(*warp);
}

}  // namespace sim
