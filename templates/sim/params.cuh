// Plain C++: the same on both sides.
#pragma once
#include "../device/params.cuh"
