#include "core/error.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/experts/expert_codes.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/grouped_product.h"
#include "kernels/cuda/experts/norm_route.h"
#include "kernels/cuda/fp8/grouped.h"
#include "kernels/cuda/fp8/products.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/gated_product.h"
#include "kernels/cuda/products/low_rank_hidden.h"
#include "kernels/cuda/products/narrow_product.h"
#include "kernels/cuda/products/wide_product.h"
#include "kernels/cuda/sparse/sparse.h"

/// What kernels of Hopper are asked for where they are not (cmake/portable_kernels.cmake): no size has one, and calls of them are mistakes.

namespace slime::kernels::cuda {
namespace {

[[noreturn]] void absent(const char* what) {
  throw BugError(std::string(what) + " is called where it has no kernel");
}

}  // namespace

bool has_tiles(Number, int, bool) { return false; }
void attend_tiles(const AttendCall&, const UnitArrays&, Stream) { absent("attend_tiles"); }

bool has_exact(Number, int) { return false; }
void attend_exact(const AttendCall&, const ExactArrays&, float*, Stream) { absent("attend_exact"); }

bool has_latent_attend() { return false; }
void attend_latent_rows(const LatentAttend&, Stream) { absent("attend_latent_rows"); }
void attend_latent_units(const LatentAttend&, const DecodeArrays&, Stream) {
  absent("attend_latent_units");
}
void attend_latent_chosen(const LatentAttend&, const DecodeArrays&, Stream) {
  absent("attend_latent_chosen");
}
void merge_latent_records(const LatentAttend&, const DecodeArrays&, Stream) {
  absent("merge_latent_records");
}

void choose_tokens(const ChooseTokens&, Stream) { absent("choose_tokens"); }

bool has_norm_route(int64_t, int64_t, int64_t) { return false; }
void norm_route(const RouteCall&, Stream) { absent("norm_route"); }

bool has_expert_product(int64_t, int64_t, int64_t, int64_t, int64_t) { return false; }
void expert_product(const ExpertProduct&, Stream) { absent("expert_product"); }
bool has_expert_codes(int64_t, int64_t, int64_t, int64_t, int64_t) { return false; }
void expert_codes(const ExpertCodes&, Stream) { absent("expert_codes"); }

bool has_grouped_product(int64_t, int64_t, int64_t) { return false; }
void grouped_product(const GroupedProduct&, Stream) { absent("grouped_product"); }
void grouped_gradient(const GroupedGradient&, Stream) { absent("grouped_gradient"); }

bool has_batch_product(Number, int64_t) { return false; }
int batch_product_splits(int, int) { absent("batch_product"); }
bool makes_low_rank_hidden(const BatchProduct&) { return false; }
int64_t low_rank_hidden_numbers(const BatchProduct&) { absent("batch_product"); }
void batch_product(const BatchProduct&, Stream) { absent("batch_product"); }

bool has_wide_product(Number, int64_t) { return false; }
int wide_product_splits(int, int) { absent("wide_product"); }
void wide_product(const BatchProduct&, Stream) { absent("wide_product"); }

bool has_narrow_product(Number, int64_t, int64_t) { return false; }
void narrow_product(const BatchProduct&, const NormPrologue&, Stream) { absent("narrow_product"); }

bool has_gated_product(Number, int64_t, int64_t, int64_t) { return false; }
void gated_product(const GatedProduct&, Stream) { absent("gated_product"); }

bool has_low_rank_hidden(Number) { return false; }
void low_rank_hidden(const LowRankHidden&, Stream) { absent("low_rank_hidden"); }

/// Small sums then go through RCCL.
std::unique_ptr<PeerCollectives> CudaGpu::make_peers(const PeerCollectivesConfig&) {
  throw std::runtime_error("there are no kernels for peers on AMD's GPUs");
}

namespace fp8 {

bool has_products() { return false; }
void few_product(const Product&, Stream) { absent("fp8::few_product"); }
int few_product_splits(int, int) { absent("fp8::few_product"); }
void many_product(const Product&, Stream) { absent("fp8::many_product"); }
int many_product_splits(int, int, int) { absent("fp8::many_product"); }
bool has_narrow_product(int64_t, int64_t) { return false; }
void narrow_product(const Product&, const void*, const Norm&, Stream) {
  absent("fp8::narrow_product");
}
bool has_grouped_codes(int64_t, int64_t, int64_t) { return false; }
void grouped_codes(const GroupedCodes&, Stream) { absent("fp8::grouped_codes"); }

}  // namespace fp8

}  // namespace slime::kernels::cuda
