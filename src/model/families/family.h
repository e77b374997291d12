#pragma once

/// A family: how one `model_type` of config.json is read and which network it means.
///
/// Adding one is one file beside this header and one row in families/families.cpp. A family reads
/// its fields from a FieldReader, which collects every problem, so that one run shows all that is
/// wrong.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/network.h"

namespace slime::model {

/// Reads fields of one JSON object and notes problems instead of throwing. A null field counts as
/// absent.
class FieldReader {
 public:
  FieldReader(const json::object& object, std::string where, std::vector<std::string>& problems)
      : object_(object), where_(std::move(where)), problems_(problems) {}

  bool has(std::string_view field) const;
  /// An integer in [low, high]; without a default, absence is a problem (and low is returned).
  int64_t integer(std::string_view field, int64_t low, int64_t high,
                  std::optional<int64_t> absent = {});
  /// A finite number in [low, high].
  double number(std::string_view field, double low, double high, std::optional<double> absent = {});
  bool boolean(std::string_view field, bool absent);
  std::string text(std::string_view field, std::string_view absent);
  /// An object inside this one, or null.
  const json::object* object(std::string_view field);
  const json::array* array(std::string_view field);
  /// The field, when present, must be one of `allowed`.
  void expect_text(std::string_view field, std::span<const std::string_view> allowed);
  /// The field, when present, must be this number: the one value whose meaning is known here.
  void expect_number(std::string_view field, double value);
  void problem(std::string_view field, std::string_view sentence);

  const std::string& where() const { return where_; }
  std::vector<std::string>& problems() { return problems_; }

 private:
  const json::value* find(std::string_view field) const;

  const json::object& object_;
  std::string where_;
  std::vector<std::string>& problems_;
};

struct Family {
  std::string_view model_type;
  void (*read)(FieldReader& fields, ModelConfig& config);
  std::unique_ptr<Network> (*make)(const ModelConfig& config, const Precision& precision,
                                   const comm::Mesh& mesh);
};

/// The table of families.
std::span<const Family> families();
/// Null for a model type that is not in the table.
const Family* find_family(std::string_view model_type);
/// "llama, mistral, olmo2, phi3, qwen2, qwen3".
std::string family_names();

void read_llama(FieldReader& fields, ModelConfig& config);
void read_mistral(FieldReader& fields, ModelConfig& config);
void read_olmo2(FieldReader& fields, ModelConfig& config);
void read_phi3(FieldReader& fields, ModelConfig& config);
void read_qwen2(FieldReader& fields, ModelConfig& config);
void read_qwen3(FieldReader& fields, ModelConfig& config);

// What most families share.

/// vocab_size, sizes, heads, norm eps, activation, dropout, positions, rope, dtype, initializer
/// range. `defaults`: what transformers takes where a field is absent. Unset: as many key-value
/// heads as query heads, hidden_size / num_attention_heads.
struct CommonDefaults {
  std::optional<int64_t> kv_heads;
  std::optional<int64_t> head_dim;
  double norm_eps = 1e-6;
  bool has_partial_rotary = false;  // partial_rotary_factor may be less than 1
};
void read_common(FieldReader& fields, ModelConfig& config, const CommonDefaults& defaults);

/// layer_types of the newer form, else the given rule: layers from `first_windowed` on have the
/// window. `window` 0 means that the file switches it off.
void read_windows(FieldReader& fields, ModelConfig& config, int64_t window, int64_t first_windowed);

}  // namespace slime::model
