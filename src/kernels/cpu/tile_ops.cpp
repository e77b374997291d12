#include "kernels/cpu/tile_ops.h"

#include "kernels/cpu/processor.h"

namespace slime::kernels::cpu {

const TileOps& tile_ops() {
  static const TileOps& ops = has_amx() ? amx_tile_ops() : avx512_tile_ops();
  return ops;
}

}  // namespace slime::kernels::cpu
