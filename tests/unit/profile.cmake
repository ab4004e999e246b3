quarrel_test(app_profile_test LABEL unit SOURCES app_limits_test.cpp app_profile_test.cpp app_watch_test.cpp LINKS quarrel_app)
