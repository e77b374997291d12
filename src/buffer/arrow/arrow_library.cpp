#include "buffer/arrow/arrow_library.h"

#include <arrow/api.h>
#include <arrow/csv/api.h>
#include <arrow/io/compressed.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "buffer/arrow/arrow_json.h"

namespace {

using arrow::Result;
using arrow::Status;
using slime::buffer::append_json_string;
using slime::buffer::append_json_value;

constexpr int64_t kBatchRows = 1024;
constexpr int32_t kCsvBlockBytes = 16 << 20;  // the longest row, too

/// Rows [first, last) of a file, given to who wants them.
class RowSink {
 public:
  RowSink(int64_t first, int64_t last, SlimeRow on_row, void* context)
      : first_(first), last_(last), on_row_(on_row), context_(context) {}

  bool goes_on() const { return goes_on_; }
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }

  /// The rows of a batch whose first one has this number.
  Status take(const arrow::RecordBatch& batch, int64_t row) {
    for (int64_t i = 0; i < batch.num_rows() && goes_on_; ++i, ++row) {
      if (row < first_) continue;
      if (row >= last_) {
        goes_on_ = false;
        break;
      }
      line_ = "{";
      for (int column = 0; column < batch.num_columns(); ++column) {
        if (column > 0) line_ += ',';
        append_json_string(line_, batch.schema()->field(column)->name());
        line_ += ':';
        if (const Status status = append_json_value(line_, *batch.column(column), i);
            !status.ok()) {
          const auto& field = *batch.schema()->field(column);
          return status.WithMessage("row ", row, ", column \"", field.name(), "\" (",
                                    field.type()->ToString(), "): ", status.message());
        }
      }
      line_ += '}';
      goes_on_ = on_row_(context_, line_.data(), line_.size());
    }
    return Status::OK();
  }

 private:
  int64_t first_, last_;
  SlimeRow on_row_;
  void* context_;
  bool goes_on_ = true;
  std::string line_;
};

/// Batch after batch, from row `begin` on; adds up what was seen.
Status take_batches(arrow::RecordBatchReader& reader, int64_t& row, RowSink& sink) {
  std::shared_ptr<arrow::RecordBatch> batch;
  while (sink.goes_on()) {
    ARROW_RETURN_NOT_OK(reader.ReadNext(&batch));
    if (batch == nullptr) break;
    ARROW_RETURN_NOT_OK(sink.take(*batch, row));
    row += batch->num_rows();
  }
  return Status::OK();
}

// Parquet.

Result<std::unique_ptr<parquet::arrow::FileReader>> open_parquet(const char* path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path));
  parquet::ArrowReaderProperties properties;
  properties.set_batch_size(kBatchRows);
  properties.set_use_threads(false);
  properties.set_pre_buffer(false);  // memory stays near one row group's pages
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(std::move(file)));
  builder.properties(properties);
  return builder.Build();
}

/// Group by group: Arrow cannot join nested columns whose dictionaries differ.
Status read_parquet(const char* path, RowSink& sink) {
  ARROW_ASSIGN_OR_RAISE(const auto reader, open_parquet(path));
  const auto metadata = reader->parquet_reader()->metadata();
  int64_t begin = 0;  // of the group looked at
  for (int group = 0; group < metadata->num_row_groups() && sink.goes_on(); ++group) {
    const int64_t end = begin + metadata->RowGroup(group)->num_rows();
    if (begin < sink.last() && end > sink.first()) {
      ARROW_ASSIGN_OR_RAISE(const auto batches, reader->GetRecordBatchReader({group}));
      int64_t row = begin;
      ARROW_RETURN_NOT_OK(take_batches(*batches, row, sink));
    }
    begin = end;
  }
  return Status::OK();
}

// Arrow's own form: a file with an index at its end, or a stream, which is what `datasets` keeps.

using OnBatch = std::function<Status(const arrow::RecordBatch& batch)>;

Status each_batch(const char* path, const std::function<bool()>& goes_on, const OnBatch& on_batch) {
  constexpr std::string_view kFileBegin = "ARROW1";
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path));
  ARROW_ASSIGN_OR_RAISE(const auto head, file->ReadAt(0, kFileBegin.size()));
  if (std::string_view(*head) == kFileBegin) {
    ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchFileReader::Open(file));
    for (int i = 0; i < reader->num_record_batches() && goes_on(); ++i) {
      ARROW_ASSIGN_OR_RAISE(const auto batch, reader->ReadRecordBatch(i));
      ARROW_RETURN_NOT_OK(batch->ValidateFull());
      ARROW_RETURN_NOT_OK(on_batch(*batch));
    }
    return Status::OK();
  }
  ARROW_RETURN_NOT_OK(file->Seek(0));
  ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchStreamReader::Open(file));
  std::shared_ptr<arrow::RecordBatch> batch;
  while (goes_on()) {
    ARROW_RETURN_NOT_OK(reader->ReadNext(&batch));
    if (batch == nullptr) break;
    ARROW_RETURN_NOT_OK(batch->ValidateFull());
    ARROW_RETURN_NOT_OK(on_batch(*batch));
  }
  return Status::OK();
}

Status read_arrow(const char* path, RowSink& sink) {
  int64_t row = 0;
  return each_batch(
      path, [&] { return sink.goes_on(); },
      [&](const arrow::RecordBatch& batch) {
        const Status status = sink.take(batch, row);
        row += batch.num_rows();
        return status;
      });
}

// Packed bytes, and CSV.

Result<std::shared_ptr<arrow::io::InputStream>> open_bytes(const char* path,
                                                           std::string_view packing) {
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::io::InputStream> file,
                        arrow::io::ReadableFile::Open(path));
  if (packing.empty()) return file;
  const auto kind = packing == "gz" ? arrow::Compression::GZIP : arrow::Compression::ZSTD;
  ARROW_ASSIGN_OR_RAISE(const auto codec, arrow::util::Codec::Create(kind));
  // The codec is of no more use once the stream has its decompressor.
  ARROW_ASSIGN_OR_RAISE(auto stream, arrow::io::CompressedInputStream::Make(codec.get(), file));
  return stream;
}

/// Every field is a text, as it stands: what looks like a number or a date is not made one.
Result<std::shared_ptr<arrow::csv::StreamingReader>> open_csv(const char* path,
                                                              std::string_view packing) {
  arrow::csv::ReadOptions read = arrow::csv::ReadOptions::Defaults();
  read.use_threads = false;
  read.block_size = kCsvBlockBytes;
  arrow::csv::ParseOptions parse = arrow::csv::ParseOptions::Defaults();
  parse.newlines_in_values = true;
  arrow::csv::ConvertOptions convert = arrow::csv::ConvertOptions::Defaults();
  convert.null_values = {};
  convert.strings_can_be_null = false;
  std::shared_ptr<arrow::csv::StreamingReader> reader;
  for (int pass = 0; pass < 2; ++pass) {  // the first for the names alone
    ARROW_ASSIGN_OR_RAISE(auto stream, open_bytes(path, packing));
    ARROW_ASSIGN_OR_RAISE(reader, arrow::csv::StreamingReader::Make(arrow::io::default_io_context(),
                                                                    stream, read, parse, convert));
    for (const auto& field : reader->schema()->fields())
      convert.column_types[field->name()] = arrow::utf8();
  }
  return reader;
}

Status read_csv(const char* path, std::string_view packing, RowSink& sink) {
  ARROW_ASSIGN_OR_RAISE(const auto reader, open_csv(path, packing));
  int64_t row = 0;
  return take_batches(*reader, row, sink);
}

/// "gz" of "csv.gz".
std::string_view packing_of(std::string_view form) {
  const std::size_t dot = form.find('.');
  return dot == std::string_view::npos ? std::string_view() : form.substr(dot + 1);
}

Status read_form(const char* path, std::string_view form, RowSink& sink) {
  if (form == "parquet") return read_parquet(path, sink);
  if (form == "arrow") return read_arrow(path, sink);
  if (form.substr(0, 3) == "csv") return read_csv(path, packing_of(form), sink);
  return Status::Invalid("no form of rows");
}

Status count_form(const char* path, std::string_view form, int64_t& num_rows) {
  if (form == "parquet") {
    ARROW_ASSIGN_OR_RAISE(const auto reader, open_parquet(path));
    num_rows = reader->parquet_reader()->metadata()->num_rows();
    return Status::OK();
  }
  num_rows = 0;
  if (form == "arrow") {
    return each_batch(
        path, [] { return true; },
        [&](const arrow::RecordBatch& batch) {
          num_rows += batch.num_rows();
          return Status::OK();
        });
  }
  ARROW_ASSIGN_OR_RAISE(const auto reader, open_csv(path, packing_of(form)));
  std::shared_ptr<arrow::RecordBatch> batch;
  while (true) {
    ARROW_RETURN_NOT_OK(reader->ReadNext(&batch));
    if (batch == nullptr) return Status::OK();
    num_rows += batch->num_rows();
  }
}

/// The message of this thread's last failure.
thread_local std::string last_problem;

const char* outcome(const Status& status) {
  if (status.ok()) return nullptr;
  last_problem = status.message();
  return last_problem.c_str();
}

/// Exceptions do not cross the border of the library.
template <typename Work>
const char* guarded(const Work& work) {
  try {
    return outcome(work());
  } catch (const std::exception& error) {
    last_problem = error.what();
    return last_problem.c_str();
  }
}

}  // namespace

extern "C" {

const char* slime_rows_count(const char* path, const char* form, int64_t* num_rows) {
  return guarded([&] { return count_form(path, form, *num_rows); });
}

const char* slime_rows_read(const char* path, const char* form, int64_t first, int64_t last,
                            SlimeRow on_row, void* context) {
  return guarded([&] {
    RowSink sink(first, last, on_row, context);
    return read_form(path, form, sink);
  });
}

const char* slime_bytes_open(const char* path, const char* packing, void** stream) {
  return guarded([&]() -> Status {
    ARROW_ASSIGN_OR_RAISE(auto opened, open_bytes(path, packing));
    *stream = new std::shared_ptr<arrow::io::InputStream>(std::move(opened));
    return Status::OK();
  });
}

const char* slime_bytes_read(void* stream, char* bytes, std::size_t size, std::size_t* count) {
  return guarded([&]() -> Status {
    auto& opened = *static_cast<std::shared_ptr<arrow::io::InputStream>*>(stream);
    ARROW_ASSIGN_OR_RAISE(const int64_t read, opened->Read(static_cast<int64_t>(size), bytes));
    *count = static_cast<std::size_t>(read);
    return Status::OK();
  });
}

void slime_bytes_close(void* stream) {
  delete static_cast<std::shared_ptr<arrow::io::InputStream>*>(stream);
}

}  // extern "C"
