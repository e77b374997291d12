#include "buffer/arrow/arrow_json.h"

#include <arrow/api.h>
#include <arrow/extension_type.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>

#include <charconv>
#include <cmath>

#include "core/base64.h"

namespace slime::buffer {

using arrow::Status;

void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

namespace {

template <typename Number>
void append_number(std::string& out, Number number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  out.append(text, end);
}

/// A float stays one: 1.0, not 1. Halves and floats are the same number as a double.
void append_float(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "null";
  } else if (std::isinf(number)) {
    out += number > 0 ? "1e999" : "-1e999";
  } else {
    const std::size_t begin = out.size();
    append_number(out, number);
    if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
  }
}

bool is_text(std::string_view bytes) {
  static const bool kHasTables = (arrow::util::InitializeUTF8(), true);
  return kHasTables && arrow::util::ValidateUTF8(bytes);
}

Status append_text(std::string& out, std::string_view text) {
  if (!is_text(text)) return Status::Invalid("a text that is not UTF-8");
  append_json_string(out, text);
  return Status::OK();
}

/// Bytes that are text are text; others, such as pictures, are {"base64": ...}.
void append_bytes(std::string& out, std::string_view bytes) {
  if (is_text(bytes)) return append_json_string(out, bytes);
  out += R"({"base64":")";
  out += slime::to_base64(bytes);
  out += R"("})";
}

template <typename Array>
Status append_list(std::string& out, const Array& array, int64_t row) {
  out += '[';
  for (int64_t i = array.value_offset(row); i < array.value_offset(row + 1); ++i) {
    if (out.back() != '[') out += ',';
    ARROW_RETURN_NOT_OK(append_json_value(out, *array.values(), i));
  }
  out += ']';
  return Status::OK();
}

Status append_struct(std::string& out, const arrow::StructArray& array, int64_t row) {
  out += '{';
  for (int i = 0; i < array.num_fields(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, array.struct_type()->field(i)->name());
    out += ':';
    ARROW_RETURN_NOT_OK(append_json_value(out, *array.field(i), row));
  }
  out += '}';
  return Status::OK();
}

/// An object where keys are texts, else a list of [key, value].
Status append_map(std::string& out, const arrow::MapArray& array, int64_t row) {
  const bool has_texts = array.keys()->type_id() == arrow::Type::STRING;
  out += has_texts ? '{' : '[';
  for (int64_t i = array.value_offset(row); i < array.value_offset(row + 1); ++i) {
    if (i > array.value_offset(row)) out += ',';
    if (!has_texts) out += '[';
    ARROW_RETURN_NOT_OK(append_json_value(out, *array.keys(), i));
    out += has_texts ? ':' : ',';
    ARROW_RETURN_NOT_OK(append_json_value(out, *array.items(), i));
    if (!has_texts) out += ']';
  }
  out += has_texts ? '}' : ']';
  return Status::OK();
}

template <typename Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

}  // namespace

Status append_json_value(std::string& out, const arrow::Array& array, int64_t row) {
  if (array.IsNull(row)) {
    out += "null";
    return Status::OK();
  }
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      out += as<arrow::BooleanArray>(array).Value(row) ? "true" : "false";
      return Status::OK();
    case arrow::Type::INT8:
      append_number(out, static_cast<int>(as<arrow::Int8Array>(array).Value(row)));
      return Status::OK();
    case arrow::Type::INT16:
      append_number(out, as<arrow::Int16Array>(array).Value(row));
      return Status::OK();
    case arrow::Type::INT32:
      append_number(out, as<arrow::Int32Array>(array).Value(row));
      return Status::OK();
    case arrow::Type::INT64:
      append_number(out, as<arrow::Int64Array>(array).Value(row));
      return Status::OK();
    case arrow::Type::UINT8:
      append_number(out, static_cast<int>(as<arrow::UInt8Array>(array).Value(row)));
      return Status::OK();
    case arrow::Type::UINT16:
      append_number(out, as<arrow::UInt16Array>(array).Value(row));
      return Status::OK();
    case arrow::Type::UINT32:
      append_number(out, as<arrow::UInt32Array>(array).Value(row));
      return Status::OK();
    case arrow::Type::UINT64:
      append_number(out, as<arrow::UInt64Array>(array).Value(row));
      return Status::OK();
    case arrow::Type::HALF_FLOAT:
      append_float(
          out,
          arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(row)).ToDouble());
      return Status::OK();
    case arrow::Type::FLOAT:
      append_float(out, as<arrow::FloatArray>(array).Value(row));
      return Status::OK();
    case arrow::Type::DOUBLE:
      append_float(out, as<arrow::DoubleArray>(array).Value(row));
      return Status::OK();
    case arrow::Type::STRING:
      return append_text(out, as<arrow::StringArray>(array).GetView(row));
    case arrow::Type::LARGE_STRING:
      return append_text(out, as<arrow::LargeStringArray>(array).GetView(row));
    case arrow::Type::STRING_VIEW:
      return append_text(out, as<arrow::StringViewArray>(array).GetView(row));
    case arrow::Type::BINARY:
      append_bytes(out, as<arrow::BinaryArray>(array).GetView(row));
      return Status::OK();
    case arrow::Type::LARGE_BINARY:
      append_bytes(out, as<arrow::LargeBinaryArray>(array).GetView(row));
      return Status::OK();
    case arrow::Type::BINARY_VIEW:
      append_bytes(out, as<arrow::BinaryViewArray>(array).GetView(row));
      return Status::OK();
    case arrow::Type::FIXED_SIZE_BINARY:
      append_bytes(out, as<arrow::FixedSizeBinaryArray>(array).GetView(row));
      return Status::OK();
    case arrow::Type::EXTENSION:
      return append_json_value(out, *as<arrow::ExtensionArray>(array).storage(), row);
    case arrow::Type::MAP:
      return append_map(out, as<arrow::MapArray>(array), row);
    case arrow::Type::LIST:
      return append_list(out, as<arrow::ListArray>(array), row);
    case arrow::Type::LARGE_LIST:
      return append_list(out, as<arrow::LargeListArray>(array), row);
    case arrow::Type::FIXED_SIZE_LIST:
      return append_list(out, as<arrow::FixedSizeListArray>(array), row);
    case arrow::Type::STRUCT:
      return append_struct(out, as<arrow::StructArray>(array), row);
    case arrow::Type::DICTIONARY: {
      const auto& coded = as<arrow::DictionaryArray>(array);
      return append_json_value(out, *coded.dictionary(), coded.GetValueIndex(row));
    }
    default: {  // dates, decimals: as Arrow prints them
      ARROW_ASSIGN_OR_RAISE(const auto scalar, array.GetScalar(row));
      return append_text(out, scalar->ToString());
    }
  }
}

}  // namespace slime::buffer
