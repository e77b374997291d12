#include "kernels/cuda/driver.h"

namespace slime::kernels::cuda {

/// HIP's runtime has these calls itself, so nothing is looked up.
const Driver& driver() {
  static const Driver calls{.reserve = cuMemAddressReserve,
                            .free_addresses = cuMemAddressFree,
                            .create = cuMemCreate,
                            .release = cuMemRelease,
                            .map = cuMemMap,
                            .unmap = cuMemUnmap,
                            .set_access = cuMemSetAccess,
                            .granularity = cuMemGetAllocationGranularity,
                            .export_handle = cuMemExportToShareableHandle,
                            .takes_one_piece = true};
  return calls;
}

}  // namespace slime::kernels::cuda
