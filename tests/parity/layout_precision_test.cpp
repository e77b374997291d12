// Gradients in bfloat16 on ranks that are threads. The same on GPUs: gpu_ranks_test.cpp.

#include "layout_precision.h"

#include "layout_cases.h"

namespace slime::parity {
namespace {

const model::Precision kNarrow{at::kBFloat16, at::kBFloat16};

std::vector<BatchGradient> gradients_of_batches(const model::Precision& precision,
                                                const ParallelLayout& layout) {
  TrainConfig config = ratios_of_one(grpo());
  config.policy.kl_loss = {};
  config.batching.dp = layout.dp;
  std::vector<BatchGradient> gradients;
  const SystemClock clock;
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(kModels + "qwen3", precision, mesh);
    Trainer trainer(*network, config, clock, {}, mesh);
    for (const TrainBatch& batch : precision_batches(network->config().vocab_size)) {
      trainer.accumulate_gradients(trainer.divide(batch).at(mesh.at().dp));
      BatchGradient gradient{std::sqrt(trainer.optimizer().gradient_squares()), {}};
      const WholeTensors whole(mesh, network->weights());
      const HeldBuffer own =
          HeldBuffer::shards(trainer.optimizer().own_shards_of(network->weights().grad()));
      for (std::size_t i = 0; i < whole.entries().size(); ++i) {
        const Tensor grad = whole.gather(i, own);
        if (mesh.rank() == 0)
          gradient.grads[whole.entries()[i].name] = grad.to(at::kDouble, false, /*copy=*/true);
      }
      if (mesh.rank() == 0) gradients.push_back(std::move(gradient));
    }
  });
  return gradients;
}

TEST(LayoutPrecision, InBfloat16ALayoutIsAsFarFromFloat32AsOneDevice) {
  const auto exact = gradients_of_batches(model::Precision::of("float32"), {});
  const auto one_device = gradients_of_batches(kNarrow, {});
  const std::vector<ParallelLayout> layouts{{},        {.dp = 2},
                                            {.tp = 2}, {.tp = 2, .sequence_parallel = true},
                                            {.cp = 2}, {.pp = 2, .first_layers = 2}};
  for (const ParallelLayout& layout : layouts) {
    SCOPED_TRACE(name_of(layout));
    expect_as_far_as_one_device(gradients_of_batches(kNarrow, layout), one_device, exact);
  }
}

}  // namespace
}  // namespace slime::parity
