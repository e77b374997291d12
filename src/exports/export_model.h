#pragma once

/// A model directory that holds the model and nothing of the run that made it: config.json, weights, tokenizer,
/// chat template, generation settings, and a card.
///
/// Tensors go from file to file, one at a time, so memory is that of the largest.

#include <filesystem>
#include <functional>
#include <string>

namespace slime::exports {

/// Precision of the weights in the new files. kAsStored: that of the checkpoint.
enum class ExportPrecision { kAsStored, kBfloat16, kFloat32, kFp8 };

/// "bf16", "fp32", "fp8"; empty: as stored. Throws ConfigError for another word.
ExportPrecision export_precision(const std::string& word);

/// Fills `target`, an empty directory, from a model directory or a checkpoint. float32 comes from the optimizer's
/// master weights where the checkpoint has them. FP8 is float8 e4m3 in blocks of 128 x 128 with
/// NAME_scale_inv (docs/precision.md), of the matrices that the program's own FP8 engine holds so; the rest stays
/// in bfloat16. Everything is on the disk when it returns. Throws ConfigError for a model that cannot be written so.
void export_model(const std::filesystem::path& source, const std::filesystem::path& target,
                  ExportPrecision precision);

/// The same of a model with an adapter merged into a copy of its weights, in float32 (model/merge_adapters.h).
/// kAsStored: in the precision of the model. `base` does not change.
void export_merged(const std::filesystem::path& base, const std::filesystem::path& adapter,
                   const std::filesystem::path& target, ExportPrecision precision);

/// Fills a folder beside `out` through `fill` and renames it: `out` is there whole or not at all. Throws
/// ConfigError when something of that name is there.
void make_whole(const std::filesystem::path& out,
                const std::function<void(const std::filesystem::path&)>& fill);

}  // namespace slime::exports
