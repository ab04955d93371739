#include "wasmill_json.h"

#include <stdlib.h>
#include <string.h>

#include "wasmill.h"

// What is read, from `at` to `end`.
typedef struct {
  const char *at, *end;
} reader;

static bool peek(const reader *r, char c) { return r->at < r->end && *r->at == c; }

static bool eat(reader *r, char c) {
  if (!peek(r, c)) return false;
  r->at++;
  return true;
}

static void eat_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool eat_word(reader *r, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
  r->at += length;
  return true;
}

static bool eat_digits(reader *r) {
  const char *begin = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
  return r->at > begin;
}

static bool eat_number(reader *r) {
  eat(r, '-');
  if (!eat(r, '0') && !eat_digits(r)) return false;
  if (eat(r, '.') && !eat_digits(r)) return false;
  if (eat(r, 'e') || eat(r, 'E')) {
    if (!eat(r, '+')) eat(r, '-');
    return eat_digits(r);
  }
  return true;
}

static bool eat_hex(reader *r, uint32_t *unit) {
  if (r->end - r->at < 4) return false;
  *unit = 0;
  for (int n = 0; n < 4; n++) {
    char c = *r->at++;
    uint32_t digit;
    if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
    else if (c >= 'a' && c <= 'f') digit = (uint32_t)(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F') digit = (uint32_t)(c - 'A' + 10);
    else return false;
    *unit = *unit * 16 + digit;
  }
  return true;
}

// One character of UTF-8 above 127: no surrogate, and none written with more bytes than it needs.
static bool eat_utf8(reader *r) {
  const unsigned char *s = (const unsigned char *)r->at;
  size_t left = (size_t)(r->end - r->at);
  size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || left < length) return false;
  unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
  unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
  if (s[1] < low || s[1] > high) return false;
  for (size_t n = 2; n < length; n++) {
    if (s[n] < 0x80 || s[n] > 0xbf) return false;
  }
  r->at += length;
  return true;
}

static size_t write_utf8(char *to, uint32_t c) {
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t n = length - 1; n > 0; n--, c >>= 6) to[n] = (char)(0x80 | (c & 0x3f));
  to[0] = (char)((0xf00 >> length) | c);
  return length;
}

// One character of a string, as UTF-8 in `to` (room for four bytes). 0 if it is wrong.
static size_t eat_character(reader *r, char *to) {
  const char *begin = r->at;
  if (begin == r->end || (unsigned char)*begin < 0x20) return 0;
  if ((unsigned char)*begin >= 0x80) {
    if (!eat_utf8(r)) return 0;
    memcpy(to, begin, (size_t)(r->at - begin));
    return (size_t)(r->at - begin);
  }
  r->at++;
  to[0] = *begin;
  if (*begin != '\\') return 1;
  if (r->at == r->end) return 0;
  uint32_t unit, low;
  switch (*r->at++) {
    case '"': to[0] = '"'; return 1;
    case '\\': to[0] = '\\'; return 1;
    case '/': to[0] = '/'; return 1;
    case 'b': to[0] = '\b'; return 1;
    case 'f': to[0] = '\f'; return 1;
    case 'n': to[0] = '\n'; return 1;
    case 'r': to[0] = '\r'; return 1;
    case 't': to[0] = '\t'; return 1;
    case 'u': break;
    default: return 0;
  }
  if (!eat_hex(r, &unit)) return 0;
  if (unit >= 0xd800 && unit < 0xdc00) {
    // The first half of a character that takes two.
    if (!eat(r, '\\') || !eat(r, 'u') || !eat_hex(r, &low) || low < 0xdc00 || low > 0xdfff) return 0;
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  } else if (unit >= 0xdc00 && unit < 0xe000) {
    return 0;
  }
  return write_utf8(to, unit);
}

static bool eat_string(reader *r) {
  char character[4];
  if (!eat(r, '"')) return false;
  while (!peek(r, '"')) {
    if (eat_character(r, character) == 0) return false;
    while (r->at < r->end && (unsigned char)*r->at - 0x20u < 0x60 && *r->at != '"' && *r->at != '\\') r->at++;
  }
  return eat(r, '"');
}

static wasmill_json_type type_of(const reader *r) {
  switch (r->at < r->end ? *r->at : 0) {
    case '{': return WASMILL_JSON_OBJECT;
    case '[': return WASMILL_JSON_ARRAY;
    case '"': return WASMILL_JSON_STRING;
    case 't': case 'f': return WASMILL_JSON_BOOL;
    case 'n': return WASMILL_JSON_NULL;
    default: return WASMILL_JSON_NUMBER;
  }
}

// A value that is no array and no object.
static bool eat_scalar(reader *r) {
  switch (type_of(r)) {
    case WASMILL_JSON_STRING: return eat_string(r);
    case WASMILL_JSON_BOOL: return eat_word(r, "true") || eat_word(r, "false");
    case WASMILL_JSON_NULL: return eat_word(r, "null");
    default: return eat_number(r);
  }
}

// A value with all that is in it. NULL if it is right; else what was expected where the reader stands.
static const char *eat_value(reader *r) {
  char closing[WASMILL_JSON_DEPTH_MAX];
  size_t depth = 0;
  for (;;) {
    // Here a value begins.
    eat_space(r);
    bool opened = peek(r, '{') || peek(r, '[');
    if (opened) {
      if (depth == WASMILL_JSON_DEPTH_MAX) return "less nesting";
      closing[depth++] = *r->at++ == '{' ? '}' : ']';
      eat_space(r);
    } else if (!eat_scalar(r)) {
      return "a value";
    }
    // Here a value ends, or an array or object has just been opened.
    for (;;) {
      if (depth == 0) return NULL;
      eat_space(r);
      if (eat(r, closing[depth - 1])) {
        depth--;
        opened = false;
        continue;
      }
      if (!opened && !eat(r, ',')) return closing[depth - 1] == '}' ? "`,` or `}`" : "`,` or `]`";
      break;
    }
    if (closing[depth - 1] == '}') {
      eat_space(r);
      if (!eat_string(r)) return "a key";
      eat_space(r);
      if (!eat(r, ':')) return "`:`";
    }
  }
}

const char *wasmill_json_parse(const char *text, size_t length, wasmill_json *value) {
  *value = (wasmill_json){0};
  if (length == 0) return "the text is empty";
  reader r = {text, text + length};
  eat_space(&r);
  wasmill_json found = {type_of(&r), r.at, 0};
  const char *expected = eat_value(&r);
  found.length = (size_t)(r.at - found.text);
  eat_space(&r);
  if (!expected && r.at < r.end) expected = "nothing more";
  if (expected) return wasmill_format("expected %s at byte %zu", expected, (size_t)(r.at - text));
  *value = found;
  return NULL;
}

// Reads the value where the reader stands.
static bool read_value(reader *r, wasmill_json *value) {
  eat_space(r);
  wasmill_json found = {type_of(r), r->at, 0};
  if (eat_value(r)) return false;
  found.length = (size_t)(r->at - found.text);
  *value = found;
  return true;
}

// A reader behind the last value that was read of a container, or at its first. False at its end.
static bool reopen(wasmill_json container, const wasmill_json *last, reader *r) {
  const char *end = container.text + container.length;
  *r = (reader){last->text ? last->text + last->length : container.text + 1, end - 1};
  eat_space(r);
  if (last->text && !eat(r, ',')) return false;
  eat_space(r);
  return r->at < r->end;
}

bool wasmill_json_next(wasmill_json array, wasmill_json *item) {
  reader r;
  return array.type == WASMILL_JSON_ARRAY && reopen(array, item, &r) && read_value(&r, item);
}

bool wasmill_json_next_member(wasmill_json object, wasmill_json *key, wasmill_json *value) {
  reader r;
  if (object.type != WASMILL_JSON_OBJECT || !reopen(object, value, &r) || !read_value(&r, key)) return false;
  eat_space(&r);
  return eat(&r, ':') && read_value(&r, value);
}

static bool is_key(wasmill_json string, const char *key) {
  reader r = {string.text + 1, string.text + string.length - 1};
  char character[4];
  while (r.at < r.end) {
    size_t length = eat_character(&r, character);
    if (length == 0 || character[0] == 0 || strncmp(key, character, length) != 0) return false;
    key += length;
  }
  return *key == 0;
}

wasmill_json wasmill_json_get(wasmill_json object, const char *key) {
  wasmill_json found = {0}, name, value = {0};
  while (wasmill_json_next_member(object, &name, &value)) {
    if (is_key(name, key)) found = value;
  }
  return found;
}

bool wasmill_json_string_n(wasmill_json value, const char **result, size_t *length) {
  if (value.type != WASMILL_JSON_STRING) return false;
  reader r = {value.text + 1, value.text + value.length - 1};
  // An escaped character is never shorter than the character.
  char *text = wasmill_alloc(value.length + 4), *to = text;
  while (r.at < r.end) {
    size_t written = eat_character(&r, to);
    if (written == 0) return false;
    to += written;
  }
  *to = 0;
  *result = text;
  *length = (size_t)(to - text);
  return true;
}

bool wasmill_json_string(wasmill_json value, const char **result) {
  const char *text;
  size_t length;
  if (!wasmill_json_string_n(value, &text, &length) || strlen(text) != length) return false;
  *result = text;
  return true;
}

bool wasmill_json_integer(wasmill_json value, int64_t *result) {
  if (value.type != WASMILL_JSON_NUMBER) return false;
  const char *at = value.text, *end = value.text + value.length;
  bool negative = *at == '-';
  // Counted downward, since there is one more number below zero than above.
  int64_t number = 0;
  for (at += negative; at < end; at++) {
    if (*at < '0' || *at > '9') return false;
    int digit = *at - '0';
    if (number < (INT64_MIN + digit) / 10) return false;
    number = number * 10 - digit;
  }
  if (!negative && number == INT64_MIN) return false;
  *result = negative ? number : -number;
  return true;
}

bool wasmill_json_number(wasmill_json value, double *result) {
  if (value.type != WASMILL_JSON_NUMBER) return false;
  *result = strtod(wasmill_copy(value.text, value.length), NULL);
  return true;
}

bool wasmill_json_bool(wasmill_json value, bool *result) {
  if (value.type != WASMILL_JSON_BOOL) return false;
  *result = *value.text == 't';
  return true;
}

const char *wasmill_json_quote(const char *text) {
  static const char hex[] = "0123456789abcdef";
  size_t length = strlen(text);
  char *quoted = wasmill_alloc(6 * length + 3), *to = quoted;
  reader r = {text, text + length};
  *to++ = '"';
  while (r.at < r.end) {
    const char *begin = r.at;
    unsigned char c = (unsigned char)*begin;
    if (c >= 0x80) {
      if (eat_utf8(&r)) {
        memcpy(to, begin, (size_t)(r.at - begin));
        to += r.at - begin;
      } else {
        r.at++;
        to += write_utf8(to, 0xfffd);
      }
      continue;
    }
    r.at++;
    if (c == '"' || c == '\\') {
      *to++ = '\\';
      *to++ = (char)c;
    } else if (c < 0x20) {
      memcpy(to, "\\u00", 4);
      to[4] = hex[c >> 4];
      to[5] = hex[c & 15];
      to += 6;
    } else {
      *to++ = (char)c;
    }
  }
  *to++ = '"';
  *to = 0;
  return quoted;
}
