// Low-rank adapters.

#include "config/flag_rows.h"

namespace slime::config {
namespace {
using C = RunConfig;
/// An adapter that begins with the run: that of a directory says these itself.
constexpr Condition kFresh{"--lora-rank", [](const RunConfig& c) { return c.lora_rank > 0; }};
constexpr Condition kAdapters{"--lora-rank or --lora-adapter-path",
                              [](const RunConfig& c) { return c.trains_adapters(); }};
}  // namespace

std::vector<FlagRow> adapter_flags() {
  return {
      works("--lora-rank", &C::lora_rank,
            "train low-rank adapters of this rank and leave the weights as they are; 0: train the "
            "weights")
          .when(kAnyRun),
      works("--lora-alpha", &C::lora_alpha, "their scale, times the rank").when(kFresh),
      works("--use-rslora", &C::use_rslora,
            "the scale is alpha over the root of the rank, not over the rank")
          .when(kFresh),
      works("--lora-dropout", &C::lora_dropout, "of what adapters read, in training")
          .when(kAdapters),
      works("--target-modules", &C::target_modules,
            "which matrices: ends of their names, one expression for whole names, or all-linear "
            "(default), "
            "which leaves out routers and the output layer")
          .when(kFresh),
      works("--exclude-modules", &C::exclude_modules, "but not these").when(kFresh),
      works("--lora-layers", &C::lora_layers, "of these layers alone").when(kFresh),
      works("--lora-rank-pattern", &C::lora_rank_pattern,
            "EXPRESSION=RANK: of modules whose names end with what the expression meets")
          .when(kFresh),
      works("--lora-alpha-pattern", &C::lora_alpha_pattern, "EXPRESSION=ALPHA, likewise")
          .when(kFresh),
      works("--lora-modules-to-save", &C::lora_modules_to_save,
            "ends of names of modules that are trained whole beside the adapters")
          .when(kFresh),
      works("--lora-init", &C::lora_init, "how A begins; B is zero",
            {"kaiming", "gaussian", "xavier"})
          .when(kFresh),
      works(
          "--lora-adapter-path", &C::lora_adapter_path,
          "directory of PEFT with the adapter that training begins with: it says rank and targets")
          .when(kAnyRun),
      works("--adapter", &C::adapter,
            "NAME=FLAGS, several times: adapters trained side by side over one base, each a run of "
            "its own in --run-dir/NAME, with the flags of the command and FLAGS in their place")
          .when(kAnyRun),
      alias("--lora-r", {.same_as = "--lora-rank"}, "the same as --lora-rank"),
      alias("--lora-target-modules", {.same_as = "--target-modules"},
            "the same as --target-modules"),
      alias("--use-peft",
            {.words = {{"", {{"--lora-rank", "16"}, {"--lora-alpha", "32"}}}}, .yields = true},
            "TRL's switch, with its rank and alpha"),
      alias("--lora-type", {.words = {{"lora", {}}, {"canonical_lora", {}}}},
            "each matrix of the files has its own pair, also where they are fused"),
  };
}

}  // namespace slime::config
