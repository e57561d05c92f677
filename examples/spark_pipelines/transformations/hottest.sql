-- The same in SQL: a streaming table that grows by what the table of readings.py grows by.
CREATE STREAMING TABLE hottest AS SELECT n FROM STREAM readings WHERE n >= 990;
