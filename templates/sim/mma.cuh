// mma.sync m16n8k16, a rendezvous of the warp; see ../device/mma.cuh for the fragment maps.
#pragma once
#include "prelude.cuh"

// Whole structs go down as words: all lanes' results are written while this lane is suspended in the call.
MG_DEVICE void mma_f16(F4& c, U4 a, FragB b, MG_SITE) { sim::mma_m16n8k16(sim::Format::f16, &c, &a, &b, line); }
MG_DEVICE void mma_bf16(F4& c, U4 a, FragB b, MG_SITE) { sim::mma_m16n8k16(sim::Format::bf16, &c, &a, &b, line); }
