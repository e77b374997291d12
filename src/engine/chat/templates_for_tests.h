#pragma once

/// For tests: chat templates, each of which does one thing that published ones do.

#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "engine/chat/template_traits.h"
#include "text/chat_template.h"

namespace slime::engine {

inline constexpr const char* kChatMl =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";

/// The roles that all but the last of the following know; no other is written.
#define SLIME_TEST_TURNS(calls)                                                          \
  "{%- for m in messages %}{%- if m.role in ['system', 'user', 'assistant', 'tool'] %}"  \
  "{{ '<' + m.role + '>' + m.content }}{%- for c in m.tool_calls or [] %}{{ '<call>' + " \
  "c.function.name + ' ' }}" calls                                                       \
  "{%- endfor %}{%- endif %}{%- endfor %}{%- if "                                        \
  "add_generation_prompt %}<assistant>{%- endif %}"

inline constexpr const char* kTextOrObjectArguments = SLIME_TEST_TURNS(
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson "
    "}}");
inline constexpr const char* kJsonArguments =
    SLIME_TEST_TURNS("{{ c.function.arguments | tojson }}");
inline constexpr const char* kKeyByKeyArguments = SLIME_TEST_TURNS(
    "{%- for k, v in c.function.arguments.items() %}{{ '<' + k + '>' + (v if v is string else v | "
    "tojson) }}{%- endfor %}");
inline constexpr const char* kShortIds = SLIME_TEST_TURNS(
    "{%- if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{%- endif %}"
    "{{ c.id + c.function.arguments | tojson }}");

/// As DeepSeek-V3's: a message has calls, or content.
inline constexpr const char* kCallsWithoutContent =
    "{%- for m in messages %}{%- if m.role == 'assistant' and m.content is none %}"
    "{%- for c in m.tool_calls %}{{ '<call>' + c.function.name + ' ' + c.function.arguments }}"
    "{%- endfor %}{%- elif m.role in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ '<' + m.role + '>' + m.content }}{%- endif %}{%- endfor %}";

inline constexpr const char* kNoSystem =
    "{%- if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{%- endif %}"
    "{%- for m in messages %}{{ '<' + m.role + '>' + m.content }}{%- endfor %}";
inline constexpr const char* kSystemFirst =
    "{%- for m in messages %}{%- if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('the system message comes first') }}{%- endif %}"
    "{{ '<' + m.role + '>' + m.content }}{%- endfor %}";

inline constexpr const char* kTextOrParts =
    "{%- for m in messages %}{{ '<' + m.role + '>' }}{%- if m.content is string %}{{ m.content }}"
    "{%- else %}{%- for p in m.content %}{{ '|' + p.text }}{%- endfor %}{%- endif %}{%- endfor %}";
inline constexpr const char* kPartsAlone =
    "{%- for m in messages %}{{ '<' + m.role + '>' }}{%- for p in m.content %}"
    "{%- if p.type == 'text' %}{{ '|' + p.text }}{%- endif %}{%- endfor %}{%- endfor %}";
inline constexpr const char* kDeveloper =
    "{%- for m in messages %}{%- if m.role == 'developer' %}{{ '<instructions>' + m.content }}"
    "{%- else %}{{ '<' + m.role + '>' + m.content }}{%- endif %}{%- endfor %}";

inline RenderChatFn render_fn(text::ChatTemplate chat) {
  const auto shared = std::make_shared<const text::ChatTemplate>(std::move(chat));
  return [shared](const json::array& messages, const json::object& object) {
    auto options = text::to_chat_options(object);
    if (!options) throw ConfigError(options.error().message);
    auto text = shared->render(messages, *options);
    if (!text) throw ConfigError(text.error().message);
    return *std::move(text);
  };
}

inline RenderChatFn render_fn(const char* source) {
  return render_fn(text::ChatTemplate::from_source(source, {}, "template"));
}

}  // namespace slime::engine
