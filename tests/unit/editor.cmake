quarrel_test(editor_test LABEL unit
  SOURCES editor_buffer_test.cpp editor_completion_test.cpp editor_history_test.cpp editor_keys_test.cpp
    editor_layout_test.cpp editor_line_test.cpp editor_random_test.cpp editor_screen.cpp editor_wrap_test.cpp
  LINKS quarrel_app quarrel_test_support)
